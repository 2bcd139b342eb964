// Devices and streams: setting, making, destroying, synchronising.
#include <algorithm>
#include <utility>

#include "choices.h"
#include "config.h"
#include "report.h"
#include "scheduler.h"
#include "stream.h"

namespace npusim {
namespace {

thread_local int device_here = -1;  // a fresh thread has none

int next_stream_id = 0;

StreamPtr make_stream(Device& device) {
  auto stream = std::make_shared<Stream>(&device);
  device.streams[stream->handle] = stream;
  return stream;
}

// A failure is the host's once it has been reported.
aclError report_failure(Stream& stream) {
  if (stream.failure == kSuccess) return kSuccess;
  if (!choices::kFailureReportedOnce) return repeat(stream.failure, stream.failure_text);
  return repeat(std::exchange(stream.failure, kSuccess), stream.failure_text);
}

aclError synchronize(aclrtStream handle, int timeout_ms) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(handle);
  if (!stream) return fail(kInvalidHandle, "synchronising with a stream that does not exist");
  if (const aclError barred = synchronizes_stream("synchronising with a stream", *stream)) return barred;
  if (const Code code = scheduler().wait(lock, "synchronising with " + describe(*stream),
                                         [stream] { return stream->idle(); }, timeout_ms))
    return code;
  return report_failure(*stream);
}

aclError synchronize_device(int timeout_ms) {
  Scheduler::Lock lock(scheduler().mutex);
  Device* device = current_device();
  if (!device) return fail(kContextNull, "synchronising with a device, and none is set in this thread");
  if (const aclError barred = synchronizes_device("synchronising with a device", *device)) return barred;
  const auto idle = [device] {
    return std::all_of(device->streams.begin(), device->streams.end(), [](const auto& one) { return one.second->idle(); });
  };
  if (const Code code = scheduler().wait(lock, "synchronising with device " + std::to_string(device->index), idle,
                                         timeout_ms))
    return code;
  aclError first = kSuccess;
  for (const auto& [handle, stream] : device->streams) {
    const aclError code = report_failure(*stream);
    if (first == kSuccess) first = code;
  }
  return first;
}

aclError create_stream(aclrtStream* out) {
  if (!out) return fail(kParamInvalid, "no place for the new stream");
  const Scheduler::Lock lock(scheduler().mutex);
  Device* device = current_device();
  if (!device) return fail(kContextNull, "making a stream, and no device is set in this thread");
  if (const Code code = take_streams(*device, 1)) return fail(code, "making a stream");
  *out = make_stream(*device)->handle;
  return kSuccess;
}

aclError destroy_stream(aclrtStream handle, bool force) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = handle ? find_stream(handle) : nullptr;
  if (!stream) return fail(kInvalidHandle, "destroying a stream that does not exist");
  if (stream == stream->device->default_stream) return fail(kParamInvalid, "destroying the default stream");
  if (stream->capture) return fail(kStreamCaptured, "destroying " + describe(*stream));
  // By force: only what is being done right now is waited for; a graph that waits in vain is dropped.
  const auto done = [stream, force] { return stream->idle() || (force && !stream->busy && !stream->run); };
  const Code code = scheduler().wait(lock, "destroying " + describe(*stream), done);
  if (code && !force) return code;
  if (!find_stream(handle)) return fail(kInvalidHandle, "destroying a stream that another thread has destroyed");
  if (stream->capture) return fail(kStreamCaptured, "destroying " + describe(*stream));
  scheduler().forget(*stream);
  stream->device->streams.erase(handle);
  --stream->device->streams_in_use;
  return kSuccess;
}

}  // namespace

Stream::Stream(Device* owner) : device(owner), handle(new_handle()), id(next_stream_id++) {}

std::vector<Device>& devices() {
  static auto* all = [] {
    auto* made = new std::vector<Device>(config().devices);
    for (int i = 0; i < config().devices; ++i) {
      (*made)[i].index = i;
      (*made)[i].default_stream = make_stream((*made)[i]);
    }
    return made;
  }();
  return *all;
}

Device* current_device() { return device_here < 0 ? nullptr : &devices()[device_here]; }

StreamPtr find_stream(aclrtStream handle) {
  if (!handle) {
    const Device* device = current_device();
    return device ? device->default_stream : nullptr;
  }
  for (const Device& device : devices()) {
    const auto found = device.streams.find(handle);
    if (found != device.streams.end()) return found->second;
  }
  return nullptr;
}

Code take_streams(Device& device, size_t count) {
  if (device.streams_in_use + static_cast<int>(count) > config().streams) return kNoStreams;
  device.streams_in_use += static_cast<int>(count);
  return kSuccess;
}

void forget_streams() {
  for (Device& device : devices()) {
    device.streams.clear();
    device.streams_in_use = 0;
  }
  next_stream_id = 0;
  for (Device& device : devices()) device.default_stream = make_stream(device);
}

std::string describe(const Stream& stream) {
  return "stream " + std::to_string(stream.id) + " of device " + std::to_string(stream.device->index);
}

}  // namespace npusim

using namespace npusim;

NPUSIM_EXPORT aclError aclrtGetDeviceCount(uint32_t* count) {
  return give(count, static_cast<uint32_t>(config().devices));
}

NPUSIM_EXPORT aclError aclrtSetDevice(int32_t index) {
  if (index < 0 || index >= config().devices)
    return fail(kInvalidDevice, "device " + std::to_string(index) + " of " + std::to_string(config().devices));
  device_here = index;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtGetDevice(int32_t* index) {
  if (device_here < 0) return kContextNull;  // asked by every fresh thread: no misuse
  return give(index, device_here);
}

NPUSIM_EXPORT aclError aclrtResetDevice(int32_t index) {
  if (index < 0 || index >= config().devices) return fail(kInvalidDevice, "resetting device " + std::to_string(index));
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtGetCurrentContext(aclrtContext* context) {
  const Scheduler::Lock lock(scheduler().mutex);
  Device* device = current_device();
  const aclError code = give(context, static_cast<aclrtContext>(device));
  return code || device ? code : kContextNull;
}

NPUSIM_EXPORT aclError aclrtSetCurrentContext(aclrtContext context) {
  const Scheduler::Lock lock(scheduler().mutex);
  for (const Device& device : devices())
    if (&device == context) {
      device_here = device.index;
      return kSuccess;
    }
  return fail(kInvalidHandle, "setting a context that does not exist");
}

NPUSIM_EXPORT aclError aclrtSynchronizeDevice() { return synchronize_device(-1); }
NPUSIM_EXPORT aclError aclrtSynchronizeDeviceWithTimeout(int32_t ms) { return synchronize_device(ms); }
NPUSIM_EXPORT aclError aclrtSynchronizeStream(aclrtStream stream) { return synchronize(stream, -1); }
NPUSIM_EXPORT aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t ms) {
  return synchronize(stream, ms);
}

NPUSIM_EXPORT aclError aclrtCreateStream(aclrtStream* out) { return create_stream(out); }
NPUSIM_EXPORT aclError aclrtCreateStreamWithConfig(aclrtStream* out, uint32_t, uint32_t) { return create_stream(out); }
NPUSIM_EXPORT aclError aclrtDestroyStream(aclrtStream stream) { return destroy_stream(stream, false); }
NPUSIM_EXPORT aclError aclrtDestroyStreamForce(aclrtStream stream) { return destroy_stream(stream, true); }

NPUSIM_EXPORT aclError aclrtStreamQuery(aclrtStream handle, int32_t* status) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(handle);
  if (!stream) return fail(kInvalidHandle, "querying a stream that does not exist");
  if (const aclError barred = synchronizes_stream("querying a stream", *stream)) return barred;
  scheduler().step(lock, 1);
  return give(status, stream->idle() ? 0 : 1);
}

NPUSIM_EXPORT aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
  const Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(handle);
  if (!stream) return fail(kInvalidHandle, "asking a stream that does not exist for its number");
  return give(id, stream->id);
}
