// The one device thread, and how the host waits for it.
//
// Running freely, the device does what is ready, stream after stream. With a seed it moves only when the host lets it:
// a few random steps at each call that puts work on a stream, and as many as it takes while the host waits. Which of
// the ready streams moves is drawn from the seed, and so are the device's habits: how far it keeps up with the host,
// and how long it stays with one stream. So a schedule is a function of the seed and the calls of one host thread;
// functions that it calls on the host take the time they take.
//
// When the process ends, the device moves only while somebody waits for it: no kernel runs beside the destructors of
// the library that it is made from.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "model.h"

namespace npusim {

class Scheduler {
 public:
  using Lock = std::unique_lock<std::mutex>;

  std::mutex mutex;  // guards all state of devices, streams, events, captures and models

  // Append to a stream's queue. Under the lock; may let it go for a while when the schedule is seeded.
  void enqueue(Lock& lock, Stream& stream, TaskPtr task);

  // Wait until `satisfied`. kSyncTimeout, with a report, when nothing can move any more and nobody did anything for
  // the configured stall time, or when `timeout_ms` (negative: none) has passed.
  Code wait(Lock& lock, const std::string& doing, const std::function<bool()>& satisfied, int timeout_ms = -1);

  // Let a seeded device make a few steps. A query lets it make one or more, so that asking again comes to an end.
  void step(Lock& lock, int least = 0);

  void forget(Stream& stream);  // drop what is queued; no kernel or host function of it may be running
  void drop_all(Lock& lock);    // drop what is queued everywhere, after waiting for what is running
  void reseed(std::optional<uint64_t> seed);
  std::string stalled() const;   // every blocked stream: what it waits for, since when, for which graph and task
  uint64_t steps() const { return steps_done_; }
  bool executing() const { return executing_; }  // then device memory must not be looked at
  // A function of the host is left to one of the caller's threads (+1), which has taken it (-1).
  void leave_to_host(int change);
  void poke() { last_change_ = Clock::now(); changed_.notify_all(); }

 private:
  struct Candidate {
    Stream* stream;
    int lane;  // of the stream's run, or -1 for the head of its queue
  };
  struct HostCall {
    Candidate where;
    TaskPtr task;
  };

  void start();
  void rest();
  void device_main();
  void host_main();
  bool may_move() const;
  std::vector<Candidate> candidates() const;
  Candidate pick(const std::vector<Candidate>& ready);
  void execute(Lock& lock, Candidate chosen);
  void finish(const Candidate& where, const TaskPtr& task, Clock::time_point started);
  bool ready(const Stream& stream, int lane) const;
  TaskPtr head(const Stream& stream, int lane) const;
  void let_go(Stream* stream);

  std::condition_variable changed_;
  std::vector<Stream*> active_;  // those with something in their queue
  std::list<const std::function<bool()>*> waiting_;
  std::list<HostCall> host_calls_;
  std::mt19937_64 random_{0};
  int most_steps_ = 0;   // at a call
  int persistence_ = 0;  // chances in 4 of staying with a stream
  bool started_ = false;
  bool exiting_ = false;
  bool executing_ = false;
  int host_calls_running_ = 0;
  int left_to_host_ = 0;
  int steps_granted_ = 0;
  uint64_t steps_done_ = 0;
  uint64_t tick_ = 0;
  std::optional<Candidate> last_;
  Clock::time_point last_change_ = Clock::now();
};

Scheduler& scheduler();

// Put a task on a stream in whatever state it is: into its capture, its update, or its queue.
aclError put(Scheduler::Lock& lock, Stream& stream, TaskPtr task);

}  // namespace npusim
