// Devices and their streams.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codes.h"
#include "task.h"

namespace npusim {

struct Capture;
struct Group;
struct Run;  // one execution of a graph (model.h)
struct Stream;

using Clock = std::chrono::steady_clock;
using StreamPtr = std::shared_ptr<Stream>;

struct Device {
  int index = 0;
  int streams_in_use = 0;  // streams and lanes of graphs, against config().streams
  int events_in_use = 0;   // against config().events
  std::map<aclrtStream, StreamPtr> streams;  // in the order of their making; the default one is among them
  StreamPtr default_stream;
};

// An update that is going on: what was launched since its begin.
struct Update {
  Group* group = nullptr;
  std::shared_ptr<Model> model;
  std::vector<TaskPtr> replacements;
};

struct Stream {
  explicit Stream(Device* owner);

  Device* device;
  aclrtStream handle;
  int id;
  std::deque<TaskPtr> queue;
  bool busy = false;               // its head is being done right now
  std::shared_ptr<Run> run;        // the graph that its head, a launch, is executing
  Clock::time_point head_since;    // when the head became the head
  uint64_t served = 0;             // when it was last picked, for fairness
  Code failure = kSuccess;         // of a task, until a synchronisation reports it
  std::string failure_text;
  std::shared_ptr<Capture> capture;
  std::unique_ptr<Update> update;
  std::optional<uint64_t> subscriber;  // the thread that runs its callbacks

  bool idle() const { return queue.empty(); }
};

// All state is guarded by the scheduler's mutex. A call that lets the lock go keeps its stream alive by a pointer of its
// own: another thread may destroy it meanwhile.
Device* current_device();                       // of this thread, or null when none was set
StreamPtr find_stream(aclrtStream handle);      // null handle: the default stream; null result: no such stream
std::vector<Device>& devices();
Code take_streams(Device& device, size_t count);  // kNoStreams when there are fewer
std::string describe(const Stream& stream);     // "stream 3 of device 0"
void forget_streams();                          // all but the default ones

}  // namespace npusim
