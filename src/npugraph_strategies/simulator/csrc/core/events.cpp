// Events, ordinary and external, and the value waits and writes that torch_npu builds its external events from.
#include <sstream>

#include "choices.h"
#include "config.h"
#include "event.h"
#include "memory.h"
#include "report.h"
#include "scheduler.h"

namespace npusim {
namespace {

std::unordered_map<void*, EventPtr>& events() {
  static auto* all = new std::unordered_map<void*, EventPtr>;
  return *all;
}

int next_event_id = 1;

aclError create_event(aclrtEvent* out, uint32_t flags) {
  if (!out) return fail(kParamInvalid, "no place for the new event");
  const Scheduler::Lock lock(scheduler().mutex);
  Device* device = current_device();
  if (!device) return fail(kContextNull, "making an event, and no device is set in this thread");
  if (device->events_in_use >= config().events) return fail(kNoEvents, "making an event");
  ++device->events_in_use;
  auto event = std::make_shared<Event>();
  event->id = next_event_id++;
  event->device = device;
  event->external = flags & kEventExternal;
  *out = event->handle;
  events()[event->handle] = event;
  return kSuccess;
}

uint64_t load(const void* address) { return __atomic_load_n(static_cast<const uint64_t*>(address), __ATOMIC_ACQUIRE); }

bool holds(uint64_t value, uint64_t wanted, uint32_t flag) {
  switch (flag) {
    case 0: return static_cast<int64_t>(value - wanted) >= 0;
    case 1: return value == wanted;
    case 2: return (value & wanted) != 0;
    default: return ~(value | wanted) != 0;
  }
}

constexpr const char* kComparison[] = {"at least", "equal to", "to share a bit with", "to lack a bit of"};

struct Found {
  StreamPtr stream;
  EventPtr event;
};

// The stream and the event of a call, or the error.
aclError find(const char* doing, aclrtStream stream, aclrtEvent event, Found* out) {
  out->stream = find_stream(stream);
  out->event = find_event(event);
  if (!out->stream) return fail(kInvalidHandle, std::string(doing) + " on a stream that does not exist");
  if (!out->event) return fail(kInvalidHandle, std::string(doing) + ": the event was destroyed or never existed");
  return kSuccess;
}

aclError check_value(const char* doing, const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 8)
    return fail(kParamInvalid, std::string(doing) + ": the address is not a multiple of 8");
  if (!memory().holder(address, 8))
    return fail(kParamInvalid, std::string(doing) + ": " + memory().whereabouts(address));
  return kSuccess;
}

// The host may not look at an event that a capture has recorded. Returns 0 or the code, with the capture broken.
aclError looks_at_event(const char* did, const char* doing, const Event& event) {
  const std::shared_ptr<Capture> capture = event.captured ? event.capture.lock() : nullptr;
  if (!capture) return kSuccess;
  capture->breaks(std::string("the host ") + did + " " + describe(event));
  return fail(choices::kSynchronizeCapturedEvent, std::string(doing) + " " + describe(event));
}

std::string named(const void* address) {
  std::ostringstream text;
  text << "the value at " << address;
  return text.str();
}

// A captured record: it marks how far its lane has come, and holds nobody up.
aclError record_captured(Scheduler::Lock& lock, Stream& stream, const EventPtr& event) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (const aclError code = put(lock, stream, make_task(Kind::kRecord, describe(*event)))) return code;
  const size_t lane = capture->lane_of(&stream);
  event->capture = capture;
  event->captured = true;
  event->lane = lane;
  event->position = capture->model->lanes[lane].nodes.size();
  event->seen = capture->seen[lane];
  event->seen[lane] = event->position;
  return kSuccess;
}

// A captured wait joins its stream to the event's capture, and depends on the record's place.
aclError wait_captured(Scheduler::Lock& lock, Stream& stream, const EventPtr& event) {
  const std::shared_ptr<Capture> of_event = event->captured ? event->capture.lock() : nullptr;
  const std::string doing = describe(stream) + " waits for " + describe(*event);
  if (!of_event) {
    if (stream.capture) {
      stream.capture->breaks(doing + ", which this capture did not record");
      return fail(event->captured ? kCaptureConflict : kCaptureDependency, doing);
    }
    return fail(choices::kForeignEvent, doing + ", which was recorded inside a capture that has ended");
  }
  if (stream.capture && stream.capture != of_event) {
    stream.capture->breaks(doing + " of another capture");
    return fail(kCaptureConflict, doing);
  }
  if (&stream == stream.device->default_stream.get()) return fail(kCaptureImplicit, doing);
  if (!stream.capture) of_event->join(&stream);
  if (const aclError code = put(lock, stream, make_task(Kind::kWait, describe(*event)))) return code;
  const size_t lane = of_event->lane_of(&stream);
  Node& node = *of_event->model->lanes[lane].nodes.back();
  node.waits = true;
  node.lane = event->lane;
  node.position = event->position;
  std::vector<size_t>& seen = of_event->seen[lane];
  for (size_t other = 0; other < event->seen.size(); ++other) seen[other] = std::max(seen[other], event->seen[other]);
  return kSuccess;
}

}  // namespace

EventPtr find_event(aclrtEvent handle) {
  const auto found = events().find(handle);
  return found == events().end() ? nullptr : found->second;
}

void forget_events() {
  events().clear();
  for (Device& device : devices()) device.events_in_use = 0;
  next_event_id = 1;
}

std::string describe(const Event& event) {
  return (event.external ? "external event " : "event ") + std::to_string(event.id);
}

}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclrtCreateEvent(aclrtEvent* out) { return create_event(out, 0); }
NPUSIM_EXPORT aclError aclrtCreateEventWithFlag(aclrtEvent* out, uint32_t flags) { return create_event(out, flags); }
NPUSIM_EXPORT aclError aclrtCreateEventExWithFlag(aclrtEvent* out, uint32_t flags) { return create_event(out, flags); }

NPUSIM_EXPORT aclError aclrtDestroyEvent(aclrtEvent handle) {
  const Scheduler::Lock lock(scheduler().mutex);
  const EventPtr event = find_event(handle);
  if (!event) return fail(kInvalidHandle, "destroying an event that was destroyed already or never existed");
  --event->device->events_in_use;
  events().erase(handle);  // tasks that still use it share it
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  Found found;
  if (const aclError code = find("recording an event", on, handle, &found)) return code;
  const EventPtr event = found.event;
  TaskPtr task = make_task(Kind::kRecord, describe(*event));
  if (found.stream->update) return put_into_update(*found.stream, std::move(task));
  if (found.stream->capture && !event->external) return record_captured(lock, *found.stream, event);
  if (event->external) {
    task->effect = [event] { event->flag = true; };
  } else {
    event->captured = false;
    if (event->recorded) event->last = std::make_shared<Mark>();
    event->recorded = true;
    task->effect = [mark = event->last] { *mark = {true, Clock::now()}; };
  }
  return put(lock, *found.stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtResetEvent(aclrtEvent handle, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  Found found;
  if (const aclError code = find("resetting an event", on, handle, &found)) return code;
  if (!found.event->external) return kSuccess;  // an ordinary event is reset by its next record
  TaskPtr task = make_task(Kind::kReset, describe(*found.event));
  task->effect = [event = found.event] { event->flag = false; };
  return put(lock, *found.stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtStreamWaitEvent(aclrtStream on, aclrtEvent handle) {
  Scheduler::Lock lock(scheduler().mutex);
  Found found;
  if (const aclError code = find("waiting for an event", on, handle, &found)) return code;
  const EventPtr event = found.event;
  if (!event->external && !found.stream->update && (event->captured || found.stream->capture))
    return wait_captured(lock, *found.stream, event);
  TaskPtr task = make_task(Kind::kWait, describe(*event));
  if (event->external) {
    task->ready = [event] { return event->flag; };
    task->awaits = [event] { return "a record of " + describe(*event); };
  } else {
    // An event that nobody has recorded holds up a strict device, so that the missing record comes to light.
    if (event->recorded || config().strict) task->ready = [mark = event->last] { return mark->reached; };
    task->awaits = [event] {
      return (event->recorded ? "the record of " : "a record, which nobody has asked for, of ") + describe(*event);
    };
  }
  return put(lock, *found.stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtSynchronizeEventWithTimeout(aclrtEvent handle, int32_t timeout_ms) {
  Scheduler::Lock lock(scheduler().mutex);
  const EventPtr event = find_event(handle);
  if (!event) return fail(kInvalidHandle, "synchronising with an event that does not exist");
  if (const aclError barred = looks_at_event("synchronised with", "synchronising with", *event)) return barred;
  const std::shared_ptr<Mark> mark = event->recorded ? event->last : nullptr;
  return scheduler().wait(lock, "synchronising with " + describe(*event),
                          [event, mark] { return event->external ? event->flag : !mark || mark->reached; },
                          timeout_ms);
}

NPUSIM_EXPORT aclError aclrtSynchronizeEvent(aclrtEvent handle) { return aclrtSynchronizeEventWithTimeout(handle, -1); }

static aclError query(aclrtEvent handle, int32_t* status, int32_t complete, int32_t not_ready) {
  Scheduler::Lock lock(scheduler().mutex);
  const EventPtr event = find_event(handle);
  if (!event) return fail(kInvalidHandle, "querying an event that does not exist");
  if (const aclError barred = looks_at_event("queried", "querying", *event)) return barred;
  scheduler().step(lock, 1);
  const bool done = event->external ? event->flag : !event->recorded || event->last->reached;
  return give(status, done ? complete : not_ready);
}

NPUSIM_EXPORT aclError aclrtQueryEventStatus(aclrtEvent event, int32_t* status) { return query(event, status, 1, 0); }
NPUSIM_EXPORT aclError aclrtQueryEventWaitStatus(aclrtEvent event, int32_t* status) { return query(event, status, 0, 1); }

NPUSIM_EXPORT aclError aclrtEventElapsedTime(float* ms, aclrtEvent begin, aclrtEvent end) {
  const Scheduler::Lock lock(scheduler().mutex);
  const EventPtr from = find_event(begin), to = find_event(end);
  if (!from || !to) return fail(kInvalidHandle, "the time between events of which one does not exist");
  if (!from->last->reached || !to->last->reached)
    return fail(kParamInvalid, "the time between " + describe(*from) + " and " + describe(*to) +
                                   ", of which one was not reached");
  return give(ms, std::chrono::duration<float, std::milli>(to->last->at - from->last->at).count());
}

NPUSIM_EXPORT aclError aclrtEventGetTimestamp(aclrtEvent handle, uint64_t* microseconds) {
  const Scheduler::Lock lock(scheduler().mutex);
  const EventPtr event = find_event(handle);
  if (!event) return fail(kInvalidHandle, "the time of an event that does not exist");
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(event->last->at.time_since_epoch());
  return give(microseconds, static_cast<uint64_t>(since.count()));
}

NPUSIM_EXPORT aclError aclrtValueWait(void* address, uint64_t value, uint32_t flag, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a value wait on a stream that does not exist");
  if (flag > 3) return fail(kParamInvalid, "a value wait with the flag " + std::to_string(flag));
  if (const aclError code = check_value("a value wait", address)) return code;
  TaskPtr task = make_task(Kind::kValueWait, named(address), {{address, 8}});
  const uint64_t serial = task->serials[0];
  // Memory that is gone lets the wait pass, so that its failure is told instead of a stall.
  const auto gone = [address, serial] { return memory().holder(address, 8) != serial; };
  task->ready = [=] { return gone() || holds(load(address), value, flag); };
  task->awaits = [=] {
    return named(address) + " to be " + kComparison[flag] + " " + std::to_string(value) +
           (gone() || scheduler().executing() ? "" : " (it is " + std::to_string(load(address)) + ")");
  };
  return put(lock, *stream, std::move(task));
}

NPUSIM_EXPORT aclError aclrtValueWrite(void* address, uint64_t value, uint32_t, aclrtStream on) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "a value write on a stream that does not exist");
  if (const aclError code = check_value("a value write", address)) return code;
  TaskPtr task = make_task(Kind::kValueWrite, named(address), {{address, 8}});
  task->run = [=] { __atomic_store_n(static_cast<uint64_t*>(address), value, __ATOMIC_RELEASE); };
  return put(lock, *stream, std::move(task));
}
