// Allocation, copies and fills.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "choices.h"
#include "config.h"
#include "memory.h"
#include "report.h"
#include "scheduler.h"

namespace npusim {
namespace {

enum CopyKind { kHostToHost, kHostToDevice, kDeviceToHost, kDeviceToDevice, kDefault };

aclError allocate(void** out, size_t bytes) {
  if (!out) return fail(kParamInvalid, "no place for the address of the memory");
  Device* device = nullptr;
  {
    const Scheduler::Lock lock(scheduler().mutex);
    device = current_device();
  }
  if (!device) return fail(kContextNull, "allocating memory, and no device is set in this thread");
  // Running out of memory is no misuse: the caller frees what it caches and tries again.
  return memory().allocate(device->index, bytes, out);
}

aclError check_range(const char* doing, const char* which, const void* address, size_t bytes) {
  if (bytes == 0 || memory().holder(address, bytes)) return kSuccess;
  std::ostringstream text;
  text << doing << ": the " << which << " (" << bytes << " bytes at " << address
       << ") is out of bounds: " << memory().whereabouts(address);
  return fail(kParamInvalid, text.str());
}

bool on_device(const void* address) { return memory().device_of(address) >= 0; }

// Which ends of a copy lie on a device, by its kind or, for the default kind, by where they are.
bool writes_device(int kind, const void* to) {
  return kind == kHostToDevice || kind == kDeviceToDevice || (kind == kDefault && on_device(to));
}
bool reads_device(int kind, const void* from) {
  return kind == kDeviceToHost || kind == kDeviceToDevice || (kind == kDefault && on_device(from));
}

aclError check_copy(const char* doing, void* to, size_t room, const void* from, size_t bytes, int kind) {
  if (kind < kHostToHost || kind > kDefault) return fail(kParamInvalid, std::string(doing) + " of an unknown kind");
  if (bytes > room) return fail(kParamInvalid, std::string(doing) + ": more bytes than the destination has");
  if (bytes && (!to || !from)) return fail(kParamInvalid, std::string(doing) + ": an address is null");
  if (writes_device(kind, to))
    if (const aclError code = check_range(doing, "destination", to, bytes)) return code;
  if (reads_device(kind, from))
    if (const aclError code = check_range(doing, "source", from, bytes)) return code;
  return kSuccess;
}

aclError check_fill(const char* doing, const void* to, size_t room, size_t bytes) {
  if (bytes > room) return fail(kParamInvalid, "a fill: more bytes than the destination has");
  return check_range(doing, "destination", to, bytes);
}

// Synchronous work happens under the lock, since the device may be waiting for a value in that memory.
template <typename Function>
void at_once(const Function& function, size_t bytes) {
  const Scheduler::Lock lock(scheduler().mutex);
  if (bytes) function();
  scheduler().poke();
}

const char* copy_name(int kind) {
  static constexpr const char* names[] = {"host to host", "host to device", "device to host", "device to device",
                                          "default"};
  return names[kind];
}

}  // namespace
}  // namespace npusim

NPUSIM_EXPORT aclError aclrtSynchronizeDevice();

using namespace npusim;

NPUSIM_EXPORT aclError aclrtMalloc(void** out, size_t bytes, int32_t) { return allocate(out, bytes); }
NPUSIM_EXPORT aclError aclrtMallocAlign32(void** out, size_t bytes, int32_t) { return allocate(out, bytes); }

NPUSIM_EXPORT aclError aclrtFree(void* base) {
  if (memory().release(base) == kSuccess) {
    const Scheduler::Lock lock(scheduler().mutex);
    scheduler().poke();  // a wait for a value in it fails now
    return kSuccess;
  }
  std::ostringstream text;
  text << "freeing " << base << ", which is not the beginning of live device memory: " << memory().whereabouts(base);
  return fail(kParamInvalid, text.str());
}

NPUSIM_EXPORT aclError aclrtMallocHost(void** out, size_t bytes) {
  if (!out) return fail(kParamInvalid, "no place for the address of the memory");
  *out = memory().allocate_host(bytes);
  return *out ? kSuccess : fail(kOutOfMemory, "allocating host memory");
}

NPUSIM_EXPORT aclError aclrtMallocHostWithCfg(void** out, uint64_t bytes, void*) { return aclrtMallocHost(out, bytes); }

NPUSIM_EXPORT aclError aclrtFreeHost(void* base) {
  if (memory().release_host(base)) return kSuccess;
  return fail(kParamInvalid, "freeing host memory that was freed already or never allocated");
}

NPUSIM_EXPORT aclError aclrtHostRegister(void* base, uint64_t bytes, int32_t, void** on_device) {
  memory().pin(base, bytes);
  if (on_device) *on_device = base;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtHostRegisterV2(void* base, uint64_t bytes, uint32_t) {
  memory().pin(base, bytes);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtHostUnregister(void* base) {
  return memory().unpin(base) ? kSuccess : fail(kParamInvalid, "unregistering host memory that is not registered");
}

NPUSIM_EXPORT aclError aclrtGetMemInfo(int32_t, size_t* free, size_t* total) {
  const Scheduler::Lock lock(scheduler().mutex);
  const Device* device = current_device();
  if (!device) return fail(kContextNull, "asking for free memory, and no device is set in this thread");
  if (const aclError code = give(total, static_cast<size_t>(config().memory))) return code;
  return give(free, static_cast<size_t>(config().memory - memory().used(device->index)));
}

NPUSIM_EXPORT aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int32_t kind) {
  if (const aclError code = check_copy("a synchronous copy", to, room, from, bytes, kind)) return code;
  if (kind != kHostToHost) {
    if (const aclError code = unsafe_call("a synchronous copy")) return code;
    if (!choices::kSynchronousCopyIgnoresStreams)
      if (const aclError code = aclrtSynchronizeDevice()) return code;
  }
  at_once([=] { std::memmove(to, from, bytes); }, bytes);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  if (const aclError code = check_fill("a synchronous fill", to, room, bytes)) return code;
  if (const aclError code = unsafe_call("a synchronous fill")) return code;
  at_once([=] { std::memset(to, value, bytes); }, bytes);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int32_t kind,
                                        aclrtStream on) {
  if (const aclError code = check_copy("an asynchronous copy", to, room, from, bytes, kind)) return code;
  const bool from_device = reads_device(kind, from), to_device = writes_device(kind, to);
  const bool pageable = (!from_device && !memory().pinned(from)) || (!to_device && !memory().pinned(to));
  if (pageable && (from_device || to_device))
    if (const aclError code = unsafe_call("an asynchronous copy with pageable host memory")) return code;
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "an asynchronous copy on a stream that does not exist");
  std::vector<Extent> extents;
  if (to_device || memory().serial(to, bytes)) extents.push_back({to, bytes});
  if (from_device || memory().serial(from, bytes)) extents.push_back({from, bytes});
  TaskPtr task = make_task(Kind::kCopy, std::string("copy ") + copy_name(kind), std::move(extents));
  if (!from_device && choices::kPageableIsStaged && !memory().pinned(from)) {
    const auto* first = static_cast<const char*>(from);
    task->run = [to, staged = std::vector<char>(first, first + bytes)] { std::copy(staged.begin(), staged.end(), static_cast<char*>(to)); };
  } else if (bytes) {
    task->run = [to, from, bytes] { std::memmove(to, from, bytes); };
  }
  const bool capturing = stream->capture != nullptr;
  const std::weak_ptr<Task> queued = task;
  if (const aclError code = put(lock, *stream, std::move(task))) return code;
  if (capturing || to_device || memory().pinned(to)) return kSuccess;
  const Code code = scheduler().wait(lock, "a copy into pageable host memory", [&queued] { return queued.expired(); });
  // The caller is told that it did not happen: it must not happen later, when the memory may be gone.
  if (const TaskPtr late = code ? queued.lock() : nullptr) late->run = nullptr;
  return code;
}

NPUSIM_EXPORT aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes, aclrtStream on) {
  if (const aclError code = check_fill("an asynchronous fill", to, room, bytes)) return code;
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(on);
  if (!stream) return fail(kInvalidHandle, "an asynchronous fill on a stream that does not exist");
  TaskPtr task = make_task(Kind::kFill, "fill", {{to, bytes}});
  if (bytes) task->run = [to, value, bytes] { std::memset(to, value, bytes); };
  return put(lock, *stream, std::move(task));
}
