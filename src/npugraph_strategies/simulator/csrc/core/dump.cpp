// A graph's tasks as a timeline in Chrome's format, as torch_npu's NPUGraph.debug_dump expects it: one row for each
// captured stream, one event for each task, records and waits named by what they share.
#include <fstream>
#include <sstream>

#include "model.h"
#include "report.h"
#include "scheduler.h"
#include "trace.h"

namespace npusim {
namespace {

constexpr double kWidth = 0.2;  // of a task, and of the gap after it, in microseconds: a graph has an order, not times

// The kind as torch_npu knows it, for tasks that it pairs.
const char* prefix(Kind kind) {
  switch (kind) {
    case Kind::kRecord: return "EVENT_RECORD_";
    case Kind::kWait: return "EVENT_WAIT_";
    case Kind::kReset: return "EVENT_RESET_";
    case Kind::kValueWrite: return "MEM_WRITE_VALUE_";
    case Kind::kValueWait: return "MEM_WAIT_VALUE_";
    default: return "";
  }
}

std::string last_word(const std::string& text) { return text.substr(text.rfind(' ') + 1); }

std::string name_of(const Task& task) {
  const std::string start = prefix(task.kind);
  return start.empty() ? task.name : start + last_word(task.name);
}

std::string timeline(const Model& model) {
  std::ostringstream out;
  const char* separator = "[\n";
  for (const Lane& lane : model.lanes) {
    for (size_t i = 0; i < lane.nodes.size(); ++i) {
      const Node& node = *lane.nodes[i];
      out << separator << "{\"ph\": \"X\", \"pid\": \"graph " << model.id << "\", \"tid\": \"stream" << lane.stream_id
          << "\", \"ts\": " << 2 * kWidth * static_cast<double>(i) << ", \"dur\": " << kWidth << ", \"name\": "
          << quoted(name_of(*node.task)) << ", \"args\": {\"Task Id\": " << i << ", \"Stream Id\": " << lane.stream_id
          << ", \"Task Type\": \"" << kind_name(node.task->kind) << "\"";
      if (node.group) out << ", \"Task Group\": " << node.group->id;
      out << "}}";
      separator = ",\n";
    }
  }
  out << (*separator == '[' ? "[" : "") << "\n]\n";
  return out.str();
}

}  // namespace
}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclmdlRIDebugJsonPrint(aclmdlRI handle, const char* path, uint32_t) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::shared_ptr<Model> model = find_model(handle);
  if (!model) return fail(kInvalidHandle, "printing a graph that does not exist");
  std::ofstream file(path ? path : "");
  file << timeline(*model);
  return file.flush() ? kSuccess : fail(kParamInvalid, std::string("writing a graph to ") + (path ? path : "nowhere"));
}

NPUSIM_EXPORT aclError aclmdlRIDebugPrint(aclmdlRI handle) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::shared_ptr<Model> model = find_model(handle);
  if (!model) return fail(kInvalidHandle, "printing a graph that does not exist");
  tell(timeline(*model));
  return kSuccess;
}
