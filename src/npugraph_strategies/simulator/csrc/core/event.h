// Events. An ordinary one remembers its last record; an external one is a flag that outlives captures.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "stream.h"

namespace npusim {

constexpr uint32_t kEventExternal = 0x20;

// One record of an ordinary event: a wait is for one of them, however often the event is recorded afterwards.
struct Mark {
  bool reached = false;
  Clock::time_point at;  // when it was
};

struct Event {
  aclrtEvent handle = new_handle();
  int id = 0;
  Device* device = nullptr;
  bool external = false;
  bool flag = false;           // external: set by a record, cleared by a reset
  bool recorded = false;       // at least once
  std::shared_ptr<Mark> last = std::make_shared<Mark>();  // the last record, or the first one that is to come
  // The place of the last record, when it was captured.
  std::weak_ptr<Capture> capture;
  bool captured = false;
  size_t lane = 0;
  size_t position = 0;
  std::vector<size_t> seen;    // how far that lane had seen each lane
};

using EventPtr = std::shared_ptr<Event>;

EventPtr find_event(aclrtEvent handle);
std::string describe(const Event& event);
void forget_events();

}  // namespace npusim
