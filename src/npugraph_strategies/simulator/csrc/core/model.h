// Captures, and the model instances ("graphs") they end in.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "event.h"

namespace npusim {

// A captured task. A patch replaces `task`; whoever has taken the old one goes on with it.
struct Node {
  TaskPtr task;
  Group* group = nullptr;
  bool waits = false;        // for another lane to have done `position` nodes
  size_t lane = 0;
  size_t position = 0;
};
using NodePtr = std::shared_ptr<Node>;

struct Group {
  aclrtTaskGrp handle = new_handle();
  int id = 0;
  Model* model = nullptr;
  Stream* stream = nullptr;      // on which it was captured
  std::vector<NodePtr> nodes;
  bool updating = false;
};

// The tasks of one captured stream.
struct Lane {
  int stream_id = 0;
  std::vector<NodePtr> nodes;
};

struct Model {
  aclmdlRI handle = new_handle();
  int id = 0;
  Device* device = nullptr;
  std::vector<Lane> lanes;
  std::vector<std::unique_ptr<Group>> groups;  // in the order of their handles
  std::deque<const Task*> launched;  // launches enqueued and not yet finished, in their order
  bool complete = false;       // its capture has ended well
  uint64_t launches = 0;       // launches begun so far
  bool executing = false;
};

// One execution of a model: a program counter for each lane over the shared, mutable nodes.
struct Run {
  std::shared_ptr<Model> model;
  uint64_t number = 0;
  std::vector<size_t> next;
  std::vector<bool> busy;
  std::vector<Clock::time_point> since;
  bool finished() const;
};

struct Capture : std::enable_shared_from_this<Capture> {
  std::shared_ptr<Model> model;
  Stream* origin = nullptr;
  int mode = 0;                // 0 global, 1 of its thread, 2 relaxed
  std::thread::id thread;
  bool broken = false;
  std::string broken_by;
  std::vector<Stream*> streams;              // one a lane
  std::vector<std::vector<size_t>> seen;     // seen[a][b]: how many nodes of lane b happen before the end of lane a
  std::vector<size_t> work;                  // nodes of each lane up to its last one that is not a record
  Group* group = nullptr;                    // the open task group

  size_t lane_of(const Stream* stream) const;
  void join(Stream* stream);
  void breaks(const std::string& why) { if (!broken) { broken = true; broken_by = why; } }
};

std::vector<std::shared_ptr<Model>> live_models();
void forget_captures();  // and models
aclError put_into_capture(Stream& stream, TaskPtr task);
aclError put_into_update(Stream& stream, TaskPtr task);
std::shared_ptr<Model> find_model(aclmdlRI handle);

// Asked by calls that a capture can bar. `unsafe_call` is for synchronous work, by the capture's mode; the others are
// illegal in every mode. Returns 0 or the code, with the capture broken.
aclError unsafe_call(const char* name);
aclError synchronizes_stream(const char* name, Stream& stream);
aclError synchronizes_device(const char* name, Device& device);

}  // namespace npusim
