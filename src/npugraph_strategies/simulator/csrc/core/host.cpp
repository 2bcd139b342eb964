// Functions of the host that a stream calls in order, and the older callbacks that a thread of the caller's runs.
#include <condition_variable>
#include <list>
#include <map>

#include "report.h"
#include "scheduler.h"

namespace npusim {
namespace {

// A function to call, and whether that has happened.
struct Callback {
  void (*function)(void*);
  void* argument;
  bool done = false;
};

// Callbacks of the streams that a thread subscribed to wait here until that thread asks for them.
struct Reports {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<Stream*, uint64_t> subscriber;
  std::map<uint64_t, std::list<Callback*>> pending;
};

Reports& reports_of_streams() {
  static auto* all = new Reports;
  return *all;
}

}  // namespace
}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclrtLaunchHostFunc(aclrtStream on, void (*function)(void*), void* argument) {
  Scheduler::Lock lock(scheduler().mutex);
  Stream* stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a host function on a stream that does not exist");
  if (!function) return fail(kParamInvalid, "a host function that is null");
  TaskPtr task = make_task(Kind::kHostCall, "host function");
  task->run = [function, argument] { function(argument); };
  return put(lock, *stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtSubscribeReport(uint64_t thread, aclrtStream on) {
  const Scheduler::Lock lock(scheduler().mutex);
  Stream* stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "subscribing to a stream that does not exist");
  Reports& all = reports_of_streams();
  const std::lock_guard<std::mutex> guard(all.mutex);
  all.subscriber[stream] = thread;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtUnSubscribeReport(uint64_t, aclrtStream on) {
  const Scheduler::Lock lock(scheduler().mutex);
  Reports& all = reports_of_streams();
  const std::lock_guard<std::mutex> guard(all.mutex);
  all.subscriber.erase(find_stream(on));
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int32_t, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  Stream* stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a callback on a stream that does not exist");
  Reports& all = reports_of_streams();
  uint64_t thread = 0;
  {
    const std::lock_guard<std::mutex> guard(all.mutex);
    const auto found = all.subscriber.find(stream);
    if (found == all.subscriber.end()) return fail(kParamInvalid, "a callback on a stream that no thread subscribed to");
    thread = found->second;
  }
  TaskPtr task = make_task(Kind::kHostCall, "callback");
  task->run = [&all, thread, function, argument] {
    std::unique_lock<std::mutex> guard(all.mutex);
    Callback callback{function, argument};
    all.pending[thread].push_back(&callback);
    all.arrived.notify_all();
    all.arrived.wait(guard, [&callback] { return callback.done; });
  };
  return put(lock, *stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtProcessReport(int32_t timeout_ms) {
  Reports& all = reports_of_streams();
  std::unique_lock<std::mutex> guard(all.mutex);
  const auto mine = static_cast<uint64_t>(pthread_self());
  auto& pending = all.pending[mine];
  const auto some = [&pending] { return !pending.empty(); };
  if (timeout_ms < 0)
    all.arrived.wait(guard, some);
  else if (!all.arrived.wait_for(guard, std::chrono::milliseconds(timeout_ms), some))
    return kSyncTimeout;
  Callback* callback = pending.front();
  pending.pop_front();
  guard.unlock();
  callback->function(callback->argument);
  guard.lock();
  callback->done = true;
  all.arrived.notify_all();
  return kSuccess;
}
