#include "scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "choices.h"
#include "config.h"
#include "memory.h"
#include "report.h"
#include "trace.h"

namespace npusim {
namespace {

using Seconds = std::chrono::duration<double>;
using namespace std::chrono_literals;

thread_local bool on_host_thread = false;  // of the thread that calls functions of the host

// Why the task cannot touch its memory any more, or nothing.
std::string memory_problem(const Task& task) {
  for (size_t i = 0; i < task.extents.size(); ++i) {
    const Extent& extent = task.extents[i];
    if (extent.bytes == 0) continue;
    const uint64_t serial = memory().serial(extent.address, extent.bytes);
    if (serial != 0 && serial == task.serials[i]) continue;
    if (!config().strict && memory().was_freed(extent.address)) continue;  // its pages are zeros now
    std::ostringstream text;
    text << "argument " << i << " of " << task.name << " (" << extent.bytes << " bytes at " << extent.address << ") is ";
    if (serial != 0)
      text << "not the memory that it was launched with: that was freed";
    else
      text << "out of bounds: " << memory().whereabouts(extent.address);
    return text.str();
  }
  return "";
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kKernel: return "kernel";
    case Kind::kCopy: return "copy";
    case Kind::kFill: return "fill";
    case Kind::kRecord: return "record";
    case Kind::kWait: return "wait";
    case Kind::kReset: return "reset";
    case Kind::kValueWrite: return "value write";
    case Kind::kValueWait: return "value wait";
    case Kind::kHostCall: return "host function";
    case Kind::kLaunch: return "graph";
    case Kind::kPatch: return "patch";
  }
  return "";
}

TaskPtr make_task(Kind kind, std::string name, std::vector<Extent> extents) {
  auto task = std::make_shared<Task>();
  task->kind = kind;
  task->name = std::move(name);
  for (const Extent& extent : extents)
    task->serials.push_back(extent.bytes ? memory().serial(extent.address, extent.bytes) : 0);
  task->extents = std::move(extents);
  return task;
}

bool Run::finished() const {
  for (size_t lane = 0; lane < next.size(); ++lane)
    if (next[lane] < model->lanes[lane].nodes.size()) return false;
  return true;
}

Scheduler& scheduler() {
  static Scheduler* instance = new Scheduler;  // never destroyed: its threads live as long as the process
  return *instance;
}

void Scheduler::start() {
  if (started_) return;
  started_ = true;
  if (config().seed) reseed(config().seed);
  std::atexit([] { scheduler().rest(); });
  std::thread([this] { device_main(); }).detach();
  std::thread([this] { host_main(); }).detach();
}

void Scheduler::rest() {
  Lock lock(mutex);
  exiting_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !executing_; });
  const std::string& path = config().trace;
  if (!path.empty() && !trace().write(path)) tell("the trace could not be written to " + path);
}

void Scheduler::leave_to_host(int change) {
  const Lock lock(mutex);
  left_to_host_ += change;
  poke();
}

void Scheduler::reseed(std::optional<uint64_t> seed) {
  config().seed = seed;
  if (seed) {
    random_.seed(*seed);
    most_steps_ = static_cast<int>(random_() % (choices::kMostSteps + 1));
    persistence_ = static_cast<int>(random_() % 4);
  }
  last_.reset();
  poke();
}

void Scheduler::enqueue(Lock& lock, Stream& stream, TaskPtr task) {
  start();
  if (stream.queue.empty()) {
    stream.head_since = Clock::now();
    active_.push_back(&stream);
  }
  stream.queue.push_back(std::move(task));
  poke();
  step(lock);
}

void Scheduler::step(Lock& lock, int least) {
  if (!config().seed || !started_ || exiting_) return;
  // A task may be a host function that needs what this thread holds (the interpreter's lock): steps are waited for,
  // functions on the host are not.
  steps_granted_ += least + static_cast<int>(random_() % (most_steps_ + 1));
  changed_.notify_all();
  changed_.wait(lock, [this] { return exiting_ || (!executing_ && (steps_granted_ == 0 || candidates().empty())); });
  steps_granted_ = 0;
}

bool Scheduler::may_move() const {
  if (!exiting_ && (steps_granted_ > 0 || !config().seed)) return true;
  return std::any_of(waiting_.begin(), waiting_.end(), [](const auto* satisfied) { return !(*satisfied)(); });
}

void Scheduler::forget(Stream& stream) {
  if (stream.run) stream.run->model->executing = false;
  for (const TaskPtr& task : stream.queue)
    if (task->model) {
      auto& launched = task->model->launched;
      launched.erase(std::find(launched.begin(), launched.end(), task.get()));
    }
  stream.run.reset();
  stream.busy = false;
  stream.queue.clear();
  active_.erase(std::remove(active_.begin(), active_.end(), &stream), active_.end());
  if (last_ && last_->stream == &stream) last_.reset();
  poke();
}

void Scheduler::drop_all(Lock& lock) {
  changed_.wait(lock, [this] { return !executing_ && host_calls_.empty() && host_calls_running_ == 0; });
  for (Stream* stream : std::vector<Stream*>(active_)) forget(*stream);
}

TaskPtr Scheduler::head(const Stream& stream, int lane) const {
  if (lane < 0) return stream.queue.front();
  return stream.run->model->lanes[lane].nodes[stream.run->next[lane]]->task;
}

bool Scheduler::ready(const Stream& stream, int lane) const {
  if (lane >= 0) {
    const Run& run = *stream.run;
    const auto& nodes = run.model->lanes[lane].nodes;
    if (run.busy[lane] || run.next[lane] >= nodes.size()) return false;
    const Node& node = *nodes[run.next[lane]];
    if (node.waits && run.next[node.lane] < node.position) return false;
    return !node.task->ready || node.task->ready();
  }
  const Task& task = *stream.queue.front();
  return !task.ready || task.ready();
}

std::vector<Scheduler::Candidate> Scheduler::candidates() const {
  std::vector<Candidate> found;
  for (Stream* stream : active_) {
    if (stream->run) {
      for (size_t lane = 0; lane < stream->run->next.size(); ++lane)
        if (ready(*stream, static_cast<int>(lane))) found.push_back({stream, static_cast<int>(lane)});
    } else if (!stream->busy && ready(*stream, -1)) {
      found.push_back({stream, -1});
    }
  }
  return found;
}

Scheduler::Candidate Scheduler::pick(const std::vector<Candidate>& ready) {
  if (!config().seed)
    return *std::min_element(ready.begin(), ready.end(), [](const Candidate& a, const Candidate& b) {
      return a.stream->served < b.stream->served;
    });
  // The one that moved last may go on: so that one stream can get far ahead of another.
  if (last_ && static_cast<int>(random_() % 4) < persistence_)
    for (const Candidate& one : ready)
      if (one.stream == last_->stream && one.lane == last_->lane) return one;
  return ready[random_() % ready.size()];
}

void Scheduler::device_main() {
  Lock lock(mutex);
  for (;;) {
    const std::vector<Candidate> ready = may_move() ? candidates() : std::vector<Candidate>{};
    if (ready.empty()) {
      changed_.wait(lock);
      continue;
    }
    execute(lock, pick(ready));
  }
}

void Scheduler::execute(Lock& lock, Candidate chosen) {
  Stream& stream = *chosen.stream;
  last_ = chosen;
  stream.served = ++tick_;
  if (steps_granted_ > 0) --steps_granted_;
  ++steps_done_;
  const TaskPtr task = head(stream, chosen.lane);
  if (chosen.lane < 0)
    stream.busy = true;
  else
    stream.run->busy[chosen.lane] = true;
  const Clock::time_point started = Clock::now();
  if (task->kind == Kind::kLaunch) {
    auto run = std::make_shared<Run>();
    run->model = task->model;
    run->number = ++task->model->launches;
    task->model->executing = true;
    run->next.assign(task->model->lanes.size(), 0);
    run->busy.assign(task->model->lanes.size(), false);
    run->since.assign(task->model->lanes.size(), started);
    stream.run = run;
    if (run->finished()) let_go(&stream);
    poke();
    return;
  }
  if (task->kind == Kind::kHostCall) {
    host_calls_.push_back({chosen, task});
    poke();
    return;
  }
  std::string problem = memory_problem(*task);
  if (problem.empty() && task->run) {
    executing_ = true;
    lock.unlock();
    try {
      if (task->kind != Kind::kKernel || !null_kernels()) task->run();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      problem = task->name + " failed: " + what.substr(0, what.find("\nException raised from "));  // torch's own stack
    } catch (...) {
      problem = task->name + " failed";
    }
    lock.lock();
    executing_ = false;
  }
  if (!problem.empty()) {
    if (stream.run)
      problem += " (task " + std::to_string(stream.run->next[chosen.lane]) + " of graph " +
                 std::to_string(stream.run->model->id) + ")";
    fail(kKernelFailed, problem + ", on " + describe(stream));
    if (stream.failure == kSuccess) {
      stream.failure = kKernelFailed;
      stream.failure_text = problem;
    }
  }
  finish(chosen, task, started);
}

void Scheduler::host_main() {
  on_host_thread = true;
  Lock lock(mutex);
  for (;;) {
    changed_.wait(lock, [this] { return !host_calls_.empty(); });
    const HostCall call = host_calls_.front();
    host_calls_.pop_front();
    ++host_calls_running_;
    const Clock::time_point started = Clock::now();
    lock.unlock();
    call.task->run();
    lock.lock();
    --host_calls_running_;
    finish(call.where, call.task, started);
  }
}

void Scheduler::finish(const Candidate& where, const TaskPtr& task, Clock::time_point started) {
  Stream& stream = *where.stream;
  Run* run = where.lane < 0 ? nullptr : stream.run.get();
  if (task->effect) task->effect();
  const Clock::time_point since = run ? run->since[where.lane] : stream.head_since;
  trace().step(stream, where.lane, *task, since, started);
  if (!run) {
    let_go(&stream);
  } else {
    run->busy[where.lane] = false;
    run->since[where.lane] = Clock::now();
    ++run->next[where.lane];
    if (run->finished()) let_go(&stream);
  }
  poke();
}

// The head of the queue is done.
void Scheduler::let_go(Stream* stream) {
  if (stream->run) {
    trace().run(*stream, *stream->run, stream->head_since);
    stream->run->model->launched.pop_front();
    stream->run->model->executing = false;
    stream->run.reset();
  }
  stream->busy = false;
  stream->queue.pop_front();
  stream->head_since = Clock::now();
  if (stream->queue.empty()) active_.erase(std::find(active_.begin(), active_.end(), stream));
}

Code Scheduler::wait(Lock& lock, const std::string& doing, const std::function<bool()>& satisfied, int timeout_ms) {
  if (satisfied()) return kSuccess;
  start();
  const Clock::time_point begun = Clock::now();
  const auto stall = std::max<Clock::duration>(std::chrono::duration_cast<Clock::duration>(Seconds(config().stall_seconds)), 1ms);
  // A function of the host that waits for the device is itself what the device waits for.
  const int own_call = on_host_thread ? 1 : 0;
  const auto place = waiting_.insert(waiting_.end(), &satisfied);
  last_change_ = begun;
  changed_.notify_all();
  Code result = kSuccess;
  while (!satisfied()) {
    const Clock::time_point now = Clock::now();
    const bool calls = host_calls_running_ > own_call + left_to_host_ || (host_calls_running_ == 0 && !host_calls_.empty());
    const bool still = !executing_ && !calls && candidates().empty();
    Clock::time_point until = last_change_ + stall;
    if (still && now >= until) {
      result = kSyncTimeout;
      fail(result, doing + " does not end: nothing can move any more.\n" + stalled());
      break;
    }
    if (now >= until) until = now + stall;
    if (timeout_ms >= 0) {
      const Clock::time_point deadline = begun + std::chrono::milliseconds(timeout_ms);
      if (now >= deadline) {
        result = kSyncTimeout;
        fail(result, doing + " has not ended after " + std::to_string(timeout_ms) + " ms.\n" + stalled());
        break;
      }
      until = std::min(until, deadline);
    }
    changed_.wait_until(lock, until);
  }
  waiting_.erase(place);
  return result;
}

std::string Scheduler::stalled() const {
  std::ostringstream text;
  const Clock::time_point now = Clock::now();
  text.precision(3);
  const auto line = [&](const Stream& stream, const Task& task, Clock::time_point since, const std::string& where) {
    text << "  " << describe(stream) << where << ": " << kind_name(task.kind) << " " << task.name;
    if (task.awaits) text << " waits for " << task.awaits();
    text << ", for " << Seconds(now - since).count() << " s\n";
  };
  for (const Stream* stream : active_) {
    if (!stream->run) {
      line(*stream, *stream->queue.front(), stream->head_since, "");
      continue;
    }
    const Run& run = *stream->run;
    for (size_t lane = 0; lane < run.next.size(); ++lane) {
      const auto& nodes = run.model->lanes[lane].nodes;
      if (run.next[lane] >= nodes.size()) continue;
      std::string where = ", graph " + std::to_string(run.model->id) + ", replay " + std::to_string(run.number) +
                          ", task " + std::to_string(run.next[lane]) + " of " + std::to_string(nodes.size());
      if (run.next.size() > 1) where += " in captured stream " + std::to_string(run.model->lanes[lane].stream_id);
      line(*stream, *nodes[run.next[lane]]->task, run.since[lane], where);
    }
  }
  return text.str();
}

aclError put(Scheduler::Lock& lock, Stream& stream, TaskPtr task) {
  if (stream.update) return put_into_update(stream, std::move(task));
  if (stream.capture) return put_into_capture(stream, std::move(task));
  scheduler().enqueue(lock, stream, std::move(task));
  return kSuccess;
}

}  // namespace npusim
