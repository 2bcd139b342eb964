// Task groups: operators of a capture whose arguments can be replaced later; and the updates that replace them.
#include <algorithm>

#include "choices.h"
#include "model.h"
#include "report.h"
#include "scheduler.h"

namespace npusim {
namespace {

int next_group_id = 1;

struct Place {
  std::shared_ptr<Model> model;
  Group* group = nullptr;
};

// The group behind a handle, while its graph lives.
Place find_group(aclrtTaskGrp handle) {
  for (const std::shared_ptr<Model>& model : live_models()) {
    const auto place = std::lower_bound(model->groups.begin(), model->groups.end(), handle,
                                        [](const auto& group, aclrtTaskGrp wanted) { return group->handle < wanted; });
    if (place != model->groups.end() && (*place)->handle == handle) return {model, place->get()};
  }
  return {};
}

// How the replacements differ from the group, in words, or nothing.
std::string mismatch(const Group& group, const std::vector<TaskPtr>& replacements) {
  if (replacements.size() != group.nodes.size())
    return std::to_string(replacements.size()) + " operators launched, and the group has " +
           std::to_string(group.nodes.size());
  for (size_t i = 0; i < replacements.size(); ++i) {
    const std::string& had = group.nodes[i]->task->name;
    if (replacements[i]->name != had)
      return "operator " + std::to_string(i) + " is " + replacements[i]->name + ", and the group has " + had;
  }
  return "";
}

}  // namespace

aclError put_into_update(Stream& stream, TaskPtr task) {
  if (task->kind != Kind::kKernel)
    return fail(kTaskType, std::string(kind_name(task->kind)) + " " + task->name + " on " + describe(stream) +
                               ", which updates a task group");
  stream.update->replacements.push_back(std::move(task));
  return kSuccess;
}

}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclmdlRICaptureTaskGrpBegin(aclrtStream on) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "the begin of a task group on a stream that does not exist");
  const std::string doing = "the begin of a task group on " + describe(*stream);
  if (stream->update) return fail(kTaskGroupStatus, doing + ", which updates one");
  if (!stream->capture) return fail(kStreamNotCaptured, doing);
  Capture& capture = *stream->capture;
  if (capture.broken) return fail(kCaptureInvalidated, doing + ": " + capture.broken_by);
  if (capture.group)
    return fail(capture.group->stream == stream.get() ? kTaskGroupStatus : kTaskGroupInterrupted,
                doing + ", while one is open on " + describe(*capture.group->stream));
  auto group = std::make_unique<Group>();
  group->id = next_group_id++;
  group->model = capture.model.get();
  group->stream = stream.get();
  capture.group = group.get();
  capture.model->groups.push_back(std::move(group));
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureTaskGrpEnd(aclrtStream on, aclrtTaskGrp* out) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "the end of a task group on a stream that does not exist");
  if (out) *out = nullptr;
  Capture* capture = stream->capture.get();
  if (!capture || !capture->group || capture->group->stream != stream.get())
    return fail(kTaskGroupStatus, "the end of a task group on " + describe(*stream) + ", where none is open");
  Group* group = capture->group;
  capture->group = nullptr;
  if (capture->broken) return fail(kCaptureInvalidated, "the end of a task group: " + capture->broken_by);
  if (out) *out = group->handle;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream on, aclrtTaskGrp handle) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "the begin of an update on a stream that does not exist");
  const std::string doing = "the begin of an update on " + describe(*stream);
  const Place place = find_group(handle);
  if (!place.group) return fail(kInvalidHandle, doing + ": the task group's graph was destroyed");
  if (stream->capture) return fail(kTaskGroupStatus, doing + ", which is being captured");
  if (stream->update) return fail(kTaskGroupStatus, doing + ", which updates already");
  if (place.group->updating) return fail(kTaskGroupStatus, doing + ": the task group is being updated already");
  if (!place.model->complete) return fail(kTaskGroupStatus, doing + ": the capture has not ended");
  place.group->updating = true;
  stream->update = std::make_unique<Update>();
  stream->update->group = place.group;
  stream->update->model = place.model;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "the end of an update on a stream that does not exist");
  if (!stream->update) return fail(kTaskGroupStatus, "the end of an update on " + describe(*stream) + ", which updates nothing");
  const std::unique_ptr<Update> update = std::move(stream->update);
  Group& group = *update->group;
  group.updating = false;
  if (update->replacements.empty() && choices::kEmptyUpdateAccepted) return kSuccess;
  if (const std::string problem = mismatch(group, update->replacements); !problem.empty())
    return fail(choices::kUpdateMismatch, "the end of an update of task group " + std::to_string(group.id) + ": " + problem);
  // The patch is work of the update's stream: it happens when that gets there, whatever the graph is doing then.
  TaskPtr task = make_task(Kind::kPatch, "task group " + std::to_string(group.id) + " of graph " +
                                             std::to_string(update->model->id));
  task->effect = [model = update->model, &group, replacements = update->replacements] {
    for (size_t i = 0; i < replacements.size(); ++i) group.nodes[i]->task = replacements[i];
  };
  scheduler().enqueue(lock, *stream, std::move(task));
  return kSuccess;
}
