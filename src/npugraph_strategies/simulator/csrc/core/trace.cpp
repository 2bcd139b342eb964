#include "trace.h"

#include <fstream>
#include <set>
#include <sstream>

#include "config.h"

namespace npusim {
namespace {

double microseconds(Clock::time_point at) {
  return std::chrono::duration<double, std::micro>(at.time_since_epoch()).count();
}

bool waits(Kind kind) { return kind == Kind::kWait || kind == Kind::kValueWait; }

}  // namespace

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

Trace& trace() {
  static Trace* instance = [] {
    auto* made = new Trace;
    made->keep(!config().trace.empty());
    return made;
  }();
  return *instance;
}

void Trace::step(const Stream& stream, int lane, const Task& task, Clock::time_point since, Clock::time_point started) {
  if (!keeping_) return;
  Entry entry{stream.device->index, stream.id, 0, 0, 0, task.kind, task.name, since, started, Clock::now()};
  if (lane >= 0) {
    const Run& run = *stream.run;
    if (lane > 0) entry.row = run.model->lanes[lane].stream_id;
    entry.model = run.model->id;
    entry.replay = run.number;
    entry.task = run.next[lane];
  }
  entries_.push_back(std::move(entry));
}

void Trace::run(const Stream& stream, const Run& run, Clock::time_point since) {
  if (!keeping_) return;
  entries_.push_back({stream.device->index, stream.id, run.model->id, run.number, 0, Kind::kLaunch,
                      "graph " + std::to_string(run.model->id), since, since, Clock::now()});
}

std::string Trace::order() const {
  std::ostringstream text;
  for (const Entry& entry : entries_) {
    text << "device " << entry.device << " stream " << entry.row << ": " << kind_name(entry.kind) << " " << entry.name;
    if (entry.model) text << " (graph " << entry.model << ", replay " << entry.replay << ", task " << entry.task << ")";
    text << "\n";
  }
  return text.str();
}

std::string Trace::json() const {
  std::ostringstream out;
  out.precision(3);
  out << std::fixed << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  std::set<std::pair<int, int>> rows;
  const char* separator = "";
  for (const Entry& entry : entries_) {
    // A wait is shown for as long as it held its stream up, everything else for as long as it ran.
    const double begun = microseconds(waits(entry.kind) || entry.kind == Kind::kLaunch ? entry.since : entry.started);
    out << separator << "{\"ph\": \"X\", \"pid\": " << entry.device << ", \"tid\": " << entry.row
        << ", \"ts\": " << begun << ", \"dur\": " << microseconds(entry.ended) - begun << ", \"cat\": "
        << quoted(kind_name(entry.kind)) << ", \"name\": " << quoted(entry.name) << ", \"args\": {\"kind\": "
        << quoted(kind_name(entry.kind));
    if (entry.model)
      out << ", \"graph\": " << entry.model << ", \"replay\": " << entry.replay << ", \"task\": " << entry.task;
    out << "}}";
    separator = ",\n";
    rows.insert({entry.device, entry.row});
  }
  for (const auto& [device, row] : rows) {
    out << separator << "{\"ph\": \"M\", \"pid\": " << device << ", \"tid\": " << row
        << ", \"name\": \"thread_name\", \"args\": {\"name\": \"stream " << row << "\"}}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.str();
}

bool Trace::write(const std::string& path) const {
  std::ofstream file(path);
  file << json();
  return static_cast<bool>(file.flush());
}

}  // namespace npusim
