// The simulator's configuration, read once from NPUGRAPH_SIM_* variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace npusim {

struct Config {
  int devices = 1;
  int streams = 1984;             // on each device, shared with graphs
  int events = 65536;             // on each device
  uint64_t memory = 64ull << 30;  // bytes on each device
  std::string soc = "Ascend910B3";
  std::string cann = "9.1.0";
  std::optional<uint64_t> seed;   // none: the device runs freely
  double stall_seconds = 10.0;
  bool strict = true;             // a record that is missing, and memory that was freed, are told
  std::string trace;              // path of the timeline written at exit, or empty
  bool null_kernels = false;
};

Config& config();  // the control interface may change the seed and the stall time while the process runs

}  // namespace npusim
