#include "config.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace npusim {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv((std::string("NPUGRAPH_SIM_") + name).c_str());
  if (!value || !*value) return std::nullopt;
  return value;
}

// The launcher has checked the values; a process that was started by hand gets a warning and the default.
template <typename T, typename Read>
void read(const char* name, T& target, Read convert) {
  const auto text = variable(name);
  if (!text) return;
  try {
    size_t used = 0;
    target = static_cast<T>(convert(*text, &used));
    if (used != text->size()) throw std::invalid_argument("trailing text");
  } catch (const std::exception&) {
    std::fprintf(stderr, "[npu simulator] NPUGRAPH_SIM_%s=%s is not a number; the default is used\n", name, text->c_str());
  }
}

Config from_environment() {
  Config made;
  const auto whole = [](const std::string& text, size_t* used) { return std::stoll(text, used); };
  const auto real = [](const std::string& text, size_t* used) { return std::stod(text, used); };
  double gib = 64;
  int64_t seed = -1;
  read("DEVICES", made.devices, whole);
  read("STREAMS", made.streams, whole);
  read("EVENTS", made.events, whole);
  read("MEMORY", gib, real);
  read("SEED", seed, whole);
  read("STALL_SECONDS", made.stall_seconds, real);
  read("STRICT", made.strict, whole);
  made.memory = static_cast<uint64_t>(gib * (1ull << 30));
  if (seed >= 0) made.seed = static_cast<uint64_t>(seed);
  made.soc = variable("SOC").value_or(made.soc);
  made.cann = variable("CANN").value_or(made.cann);
  made.trace = variable("TRACE").value_or("");
  made.null_kernels = variable("KERNELS").value_or("real") == "null";
  return made;
}

}  // namespace

Config& config() {
  static Config* instance = new Config(from_environment());  // never destroyed: threads may still run at exit
  return *instance;
}

}  // namespace npusim
