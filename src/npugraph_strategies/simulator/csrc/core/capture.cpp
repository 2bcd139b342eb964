// Captures: what a capturing stream is given is stored, not run. And the rules of what may happen meanwhile.
#include <algorithm>
#include <map>

#include "choices.h"
#include "model.h"
#include "report.h"
#include "scheduler.h"

namespace npusim {
namespace {

thread_local int mode_here = 0;  // how this thread lets captures bar its own unsafe calls: like a capture's mode

std::vector<std::shared_ptr<Capture>>& going_on() {
  static auto* all = new std::vector<std::shared_ptr<Capture>>;
  return *all;
}

std::map<void*, std::shared_ptr<Model>>& models() {
  static auto* all = new std::map<void*, std::shared_ptr<Model>>;
  return *all;
}

int next_model_id = 1;

constexpr const char* kModes[] = {"global", "thread_local", "relaxed"};

void leave(const Capture& capture) {
  for (Stream* stream : capture.streams) stream->capture.reset();
  auto& all = going_on();
  all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& one) { return one.get() == &capture; }), all.end());
}

// The streams whose last work the origin does not wait for, in words.
std::string unjoined(const Capture& capture) {
  std::string names;
  for (size_t lane = 1; lane < capture.streams.size(); ++lane)
    if (capture.seen[0][lane] < capture.work[lane])
      names += (names.empty() ? "" : ", ") + describe(*capture.streams[lane]);
  return names;
}

// Why a capture that ends gives no graph; when there is nothing, the graph has its streams.
aclError refuse_end(const Capture& capture) {
  if (capture.broken) return fail(kCaptureInvalidated, "the end of a capture: " + capture.broken_by);
  if (capture.group) return fail(kTaskGroupStatus, "the end of a capture in which a task group is still open");
  if (const std::string names = unjoined(capture); !names.empty())
    return fail(kStreamUnjoined, "the end of a capture: " + names);
  if (const Code code = take_streams(*capture.model->device, capture.model->lanes.size()))
    return fail(code, "the end of a capture: a graph takes a stream for each captured one");
  return kSuccess;
}

// Give back the streams that a graph has taken.
void give_back_streams(const Model& model) {
  if (model.complete) model.device->streams_in_use -= static_cast<int>(model.lanes.size());
}

}  // namespace

size_t Capture::lane_of(const Stream* stream) const {
  return std::find(streams.begin(), streams.end(), stream) - streams.begin();
}

void Capture::join(Stream* stream) {
  streams.push_back(stream);
  model->lanes.push_back(npusim::Lane{stream->id, {}});
  for (auto& row : seen) row.push_back(0);
  seen.emplace_back(streams.size(), 0);
  work.push_back(0);
  stream->capture = shared_from_this();
}

std::vector<std::shared_ptr<Model>> live_models() {
  std::vector<std::shared_ptr<Model>> all;
  for (const auto& [handle, model] : models()) all.push_back(model);
  return all;
}

std::shared_ptr<Model> find_model(aclmdlRI handle) {
  const auto found = models().find(handle);
  return found == models().end() ? nullptr : found->second;
}

void forget_captures() {
  while (!going_on().empty()) leave(*std::shared_ptr<Capture>(going_on().back()));
  for (const auto& [handle, model] : models()) give_back_streams(*model);
  models().clear();
  next_model_id = 1;
}

aclError put_into_capture(Stream& stream, TaskPtr task) {
  Capture& capture = *stream.capture;
  const std::string doing = std::string("capturing ") + kind_name(task->kind) + " " + task->name;
  if (capture.broken) return fail(choices::kLaunchIntoBroken, doing + ": " + capture.broken_by);
  if (task->kind == Kind::kLaunch) return fail(kModelCaptured, doing);
  if (capture.group) {
    if (capture.group->stream != &stream) {
      capture.breaks("another stream launched while a task group was open");
      return fail(kTaskGroupInterrupted, doing + " on " + describe(stream) + ", while a group is open on " +
                                             describe(*capture.group->stream));
    }
    if (task->kind != Kind::kKernel) {
      capture.breaks("something other than an operator was put into a task group");
      return fail(kTaskType, doing + " in a task group");
    }
  }
  const size_t lane = capture.lane_of(&stream);
  auto node = std::make_shared<Node>();
  const bool counts = task->kind != Kind::kRecord;
  node->task = std::move(task);
  node->group = capture.group;
  if (capture.group) capture.group->nodes.push_back(node);
  auto& nodes = capture.model->lanes[lane].nodes;
  nodes.push_back(std::move(node));
  capture.seen[lane][lane] = nodes.size();
  if (counts) capture.work[lane] = nodes.size();
  return kSuccess;
}

aclError unsafe_call(const char* name) {
  const Scheduler::Lock lock(scheduler().mutex);
  if (mode_here == 2) return kSuccess;
  const std::thread::id me = std::this_thread::get_id();
  for (const auto& capture : going_on()) {
    const bool mine = capture->thread == me;
    if (capture->mode == 2 || (!mine && (capture->mode != 0 || mode_here != 0))) continue;
    capture->breaks(std::string(name) + (mine ? "" : " in another thread"));
    return fail(kCaptureMode, std::string(name) + " during a capture of mode " + kModes[capture->mode]);
  }
  return kSuccess;
}

aclError synchronizes_stream(const char* name, Stream& stream) {
  if (!stream.capture) return kSuccess;
  stream.capture->breaks(std::string(name) + " that is being captured");
  return fail(choices::kSynchronizeCapturedStream, std::string(name) + ": " + describe(stream));
}

aclError synchronizes_device(const char* name, Device& device) {
  bool any = false;
  for (const auto& capture : going_on()) {
    if (capture->model->device != &device) continue;
    capture->breaks(std::string(name) + " on which a capture is going on");
    any = true;
  }
  return any ? fail(choices::kSynchronizeCapturedDevice, name) : kSuccess;
}

}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclmdlRICaptureBegin(aclrtStream on, int32_t mode) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a capture on a stream that does not exist");
  if (mode < 0 || mode > 2) return fail(kParamInvalid, "a capture of mode number " + std::to_string(mode));
  if (stream == stream->device->default_stream) return fail(kCaptureImplicit, "beginning a capture");
  if (stream->capture) return fail(kStreamCaptured, "beginning a capture on " + describe(*stream));
  if (stream->update) return fail(kTaskGroupStatus, "beginning a capture on " + describe(*stream) + ", which updates");
  auto capture = std::make_shared<Capture>();
  capture->model = std::make_shared<Model>();
  capture->model->id = next_model_id++;
  capture->model->device = stream->device;
  capture->origin = stream.get();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  going_on().push_back(capture);
  capture->join(stream.get());
  models()[capture->model->handle] = capture->model;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureEnd(aclrtStream on, aclmdlRI* out) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "the end of a capture on a stream that does not exist");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return fail(kStreamNotCaptured, "the end of a capture on " + describe(*stream));
  if (capture->origin != stream.get())
    return fail(kCaptureUnmatched, "the end of a capture on " + describe(*stream) + ", which began on " +
                                       describe(*capture->origin));
  if (capture->mode != 2 && capture->thread != std::this_thread::get_id())
    return fail(kCaptureWrongThread, "the end of a capture on " + describe(*stream));
  // From here on the capture is over, well or not.
  leave(*capture);
  if (out) *out = nullptr;
  Model& model = *capture->model;
  if (const aclError code = refuse_end(*capture)) {
    models().erase(model.handle);
    return code;
  }
  model.complete = true;
  if (out) *out = model.handle;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureGetInfo(aclrtStream on, int32_t* status, aclmdlRI* out) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "asking whether a stream is captured, and it does not exist");
  const std::shared_ptr<Capture>& capture = stream->capture;
  if (status) *status = !capture ? 0 : capture->broken ? 2 : 1;
  if (out) *out = capture ? capture->model->handle : nullptr;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureThreadExchangeMode(int32_t* mode) {
  if (!mode || *mode < 0 || *mode > 2) return fail(kParamInvalid, "exchanging a thread's capture mode");
  std::swap(*mode, mode_here);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRIExecuteAsync(aclmdlRI handle, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  const std::shared_ptr<Model> model = find_model(handle);
  if (!stream) return fail(kInvalidHandle, "launching a graph on a stream that does not exist");
  if (!model) return fail(kInvalidHandle, "launching a graph that was destroyed or never existed");
  if (!model->complete) return fail(kModelCaptured, "launching a graph whose capture has not ended");
  if (model->device != stream->device) return fail(kStreamContext, "launching a graph on " + describe(*stream));
  TaskPtr task = make_task(Kind::kLaunch, "graph " + std::to_string(model->id));
  task->model = model;
  // Replays of one graph do not overlap: it has one set of streams.
  task->ready = [model, self = task.get()] { return model->launched.front() == self && !model->executing; };
  task->awaits = [model] { return "the replay of graph " + std::to_string(model->id) + " before it"; };
  if (!stream->capture && !stream->update) model->launched.push_back(task.get());
  return put(lock, *stream, std::move(task));
}

NPUSIM_EXPORT aclError aclmdlRIDestroy(aclmdlRI handle) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::shared_ptr<Model> model = find_model(handle);
  if (!model) return fail(kInvalidHandle, "destroying a graph that was destroyed already or never existed");
  if (!model->complete) return fail(kModelCaptured, "destroying a graph whose capture has not ended");
  if (!model->launched.empty()) return fail(kModelRunning, "destroying graph " + std::to_string(model->id));
  give_back_streams(*model);
  models().erase(handle);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRIGetId(aclmdlRI handle, uint32_t* id) {
  const Scheduler::Lock lock(scheduler().mutex);
  const std::shared_ptr<Model> model = find_model(handle);
  if (!model) return fail(kInvalidHandle, "asking a graph that does not exist for its number");
  return give(id, static_cast<uint32_t>(model->id));
}
