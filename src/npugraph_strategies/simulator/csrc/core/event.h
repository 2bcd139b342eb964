// Events. An ordinary one remembers how often it was recorded; an external one is a flag that outlives captures.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "stream.h"

namespace npusim {

constexpr uint32_t kEventExternal = 0x20;

struct Event {
  aclrtEvent handle = new_handle();
  int id = 0;
  Device* device = nullptr;
  bool external = false;
  bool flag = false;           // external: set by a record, cleared by a reset
  uint64_t recorded = 0;       // records enqueued so far
  uint64_t completed = 0;      // records that the device has reached
  uint64_t unwaited = 0;       // waits enqueued and not yet passed
  Clock::time_point at;        // of the last completed record
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
