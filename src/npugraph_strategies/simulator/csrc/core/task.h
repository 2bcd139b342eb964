// What a stream is made of: one task is one thing that the device does, in order, when it is ready.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch.h"

namespace npusim {

struct Model;

enum class Kind { kKernel, kCopy, kFill, kRecord, kWait, kReset, kValueWrite, kValueWait, kHostCall, kLaunch, kPatch };

const char* kind_name(Kind kind);

struct Task {
  Kind kind = Kind::kKernel;
  std::string name;
  std::vector<Extent> extents;    // device memory it touches
  std::vector<uint64_t> serials;  // the allocation that held each extent when the task was made
  std::function<void()> run;            // on the device thread, without locks; may be empty
  std::function<bool()> ready;          // under the lock; empty: always
  std::function<void()> effect;         // under the lock, when the task has run
  std::function<std::string()> awaits;  // under the lock, for the report of a stall
  std::shared_ptr<Model> model;         // of a launch
};

using TaskPtr = std::shared_ptr<Task>;

TaskPtr make_task(Kind kind, std::string name, std::vector<Extent> extents = {});

}  // namespace npusim
