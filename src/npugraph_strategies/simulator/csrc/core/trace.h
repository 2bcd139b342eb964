// What the device did, in the order in which it did it; exported as a Chrome/Perfetto timeline.
#pragma once

#include <string>
#include <vector>

#include "model.h"

namespace npusim {

class Trace {
 public:
  void step(const Stream& stream, int lane, const Task& task, Clock::time_point since, Clock::time_point started);
  void run(const Stream& stream, const Run& run, Clock::time_point since);

  void keep(bool on) { keeping_ = on; }
  void clear() { entries_.clear(); }
  // One line a step, without times: equal for equal schedules.
  std::string order() const;
  std::string json() const;
  bool write(const std::string& path) const;

 private:
  struct Entry {
    int device;
    int row;            // the stream's number, or that of the captured stream
    int model;          // 0 outside graphs
    uint64_t replay;
    size_t task;
    Kind kind;
    std::string name;
    Clock::time_point since, started, ended;
  };
  bool keeping_ = false;
  std::vector<Entry> entries_;
};

std::string quoted(const std::string& text);  // as JSON has it

Trace& trace();  // guarded by the scheduler's mutex

}  // namespace npusim
