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

// Callbacks wait here until the thread that subscribed to their stream asks for them.
struct Reports {
  std::mutex mutex;
  std::condition_variable arrived;
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
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a host function on a stream that does not exist");
  if (!function) return fail(kParamInvalid, "a host function that is null");
  TaskPtr task = make_task(Kind::kHostCall, "host function");
  task->run = [function, argument] { function(argument); };
  return put(lock, *stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtSubscribeReport(uint64_t thread, aclrtStream on) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "subscribing to a stream that does not exist");
  stream->subscriber = thread;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtUnSubscribeReport(uint64_t, aclrtStream on) {
  const Scheduler::Lock lock(scheduler().mutex);
  if (const StreamPtr stream = find_stream(on)) stream->subscriber.reset();
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtLaunchCallback(void (*function)(void*), void* argument, int32_t, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a callback on a stream that does not exist");
  if (!function) return fail(kParamInvalid, "a callback that is null");
  if (!stream->subscriber) return fail(kParamInvalid, "a callback on a stream that no thread subscribed to");
  TaskPtr task = make_task(Kind::kHostCall, "callback");
  task->run = [&all = reports_of_streams(), thread = *stream->subscriber, function, argument] {
    scheduler().leave_to_host(+1);
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
  scheduler().leave_to_host(-1);
  callback->function(callback->argument);
  guard.lock();
  callback->done = true;
  all.arrived.notify_all();
  return kSuccess;
}
