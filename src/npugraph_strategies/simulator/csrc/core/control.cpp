// The control interface: what `npugraph_strategies.simulator.Control` calls through ctypes in a running process.
#include <cstdio>

#include "config.h"
#include "memory.h"
#include "report.h"
#include "scheduler.h"
#include "trace.h"

using namespace npusim;

NPUSIM_EXPORT void npusim_seed(int64_t seed) {
  const Scheduler::Lock lock(scheduler().mutex);
  scheduler().reseed(seed < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(seed)));
}

NPUSIM_EXPORT void npusim_stall_seconds(double seconds) {
  const Scheduler::Lock lock(scheduler().mutex);
  config().stall_seconds = seconds;
}

NPUSIM_EXPORT void npusim_strict(int32_t strict) {
  const Scheduler::Lock lock(scheduler().mutex);
  config().strict = strict != 0;
}

NPUSIM_EXPORT void npusim_limits(int32_t streams, int32_t events) {
  const Scheduler::Lock lock(scheduler().mutex);
  config().streams = streams;
  config().events = events;
}

NPUSIM_EXPORT void npusim_trace_keep(int32_t on) {
  const Scheduler::Lock lock(scheduler().mutex);
  trace().keep(on != 0);
}

NPUSIM_EXPORT void npusim_trace_clear() {
  const Scheduler::Lock lock(scheduler().mutex);
  trace().clear();
}

NPUSIM_EXPORT int32_t npusim_trace_write(const char* path) {
  const Scheduler::Lock lock(scheduler().mutex);
  return trace().write(path) ? 0 : -1;
}

// Copies the order of steps as text; returns the length it has, without the terminating zero.
NPUSIM_EXPORT uint64_t npusim_trace_order(char* out, uint64_t room) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::string text = trace().order();
  if (out && room) std::snprintf(out, room, "%s", text.c_str());
  return text.size();
}

NPUSIM_EXPORT uint64_t npusim_count(const char* what, int32_t device) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::string name = what;
  if (name == "steps") return scheduler().steps();
  if (name == "reports") return reports();
  if (name == "graphs") return live_models().size();
  if (device < 0 || device >= static_cast<int32_t>(devices().size())) return 0;
  if (name == "streams") return devices()[device].streams_in_use;
  if (name == "events") return devices()[device].events_in_use;
  if (name == "memory") return memory().used(device);
  return 0;
}

// A kernel for tests of the driver itself, which need no operator library: adds `value` to `count` numbers.
NPUSIM_EXPORT aclError npusim_launch_add(const char* name, aclrtStream stream, double* numbers, uint64_t count,
                                         double value) {
  Work work{name, {{numbers, count * sizeof(double)}}, nullptr};
  work.run = [numbers, count, value] {
    for (uint64_t i = 0; i < count; ++i) numbers[i] += value;
  };
  return submit(stream, std::move(work));
}

// Back to a fresh process: what is queued is dropped, streams, events, graphs and captures are gone, handles are dead.
// Device memory stays. For tests of the driver itself; whoever holds handles, as torch_npu does, must not call it.
NPUSIM_EXPORT void npusim_reset() {
  Scheduler::Lock lock(scheduler().mutex);
  scheduler().drop_all(lock);
  forget_captures();
  forget_events();
  forget_streams();
  trace().clear();
}
