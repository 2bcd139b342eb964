// What the driver says of itself, and its settings.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "config.h"
#include "report.h"
#include "scheduler.h"

using namespace npusim;

namespace {

// Names and numbers of one installed package of CANN, as aclsysGetCANNVersion fills them in.
struct PackageVersion {
  char version[128];
  char major[64];
  char minor[64];
  char release[64];
  char patch[64];
  char reserved[128];
};

template <size_t N>
void write(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

// The parts of "9.1.0", "8.1.RC1" or "8.5.0.alpha2": major, minor, release, patch.
std::vector<std::string> parts_of(const std::string& version) {
  std::vector<std::string> parts(1);
  for (const char c : version)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  parts.resize(4);
  return parts;
}

std::mutex settings_mutex;

std::map<int, int64_t>& system_settings() {
  static auto* all = new std::map<int, int64_t>;
  return *all;
}

std::map<int, std::string>& compile_settings() {
  static auto* all = new std::map<int, std::string>;
  return *all;
}

}  // namespace

NPUSIM_EXPORT aclError aclInit(const char*) { return kSuccess; }
NPUSIM_EXPORT aclError aclFinalize() { return kSuccess; }

NPUSIM_EXPORT const char* aclrtGetSocName() { return config().soc.c_str(); }

NPUSIM_EXPORT aclError aclsysGetCANNVersion(int32_t, PackageVersion* out) {
  const std::vector<std::string> parts = parts_of(config().cann);
  if (const aclError code = give(out, PackageVersion{})) return code;
  write(out->version, config().cann);
  write(out->major, parts[0]);
  write(out->minor, parts[1]);
  write(out->release, parts[2]);
  write(out->patch, parts[3]);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclsysGetVersionStr(const char*, char* out) {
  if (!out) return fail(kParamInvalid, "no place for CANN's version");
  std::strcpy(out, config().cann.c_str());
  return kSuccess;
}

// The last failure of the device that no synchronisation has reported yet.
NPUSIM_EXPORT aclError aclrtPeekAtLastError(int32_t) {
  const Scheduler::Lock lock(scheduler().mutex);
  if (const Device* device = current_device())
    for (const auto& [handle, stream] : device->streams)
      if (stream->failure != kSuccess) return stream->failure;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtGetLastError(int32_t level) { return aclrtPeekAtLastError(level); }

NPUSIM_EXPORT aclError aclrtSetSysParamOpt(int32_t option, int64_t value) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  system_settings()[option] = value;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtGetSysParamOpt(int32_t option, int64_t* value) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  return give(value, system_settings()[option]);
}

NPUSIM_EXPORT aclError aclrtCtxSetSysParamOpt(int32_t option, int64_t value) { return aclrtSetSysParamOpt(option, value); }

NPUSIM_EXPORT aclError aclSetCompileopt(int32_t option, const char* value) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  compile_settings()[option] = value ? value : "";
  return kSuccess;
}

NPUSIM_EXPORT size_t aclGetCompileoptSize(int32_t option) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  return compile_settings()[option].size() + 1;
}

NPUSIM_EXPORT aclError aclGetCompileopt(int32_t option, char* out, size_t room) {
  const std::lock_guard<std::mutex> lock(settings_mutex);
  if (!out) return fail(kParamInvalid, "no place for a compile option");
  std::snprintf(out, room, "%s", compile_settings()[option].c_str());
  return kSuccess;
}

// Everything optional is offered: a capability asked for is there.
NPUSIM_EXPORT aclError aclGetDeviceCapability(uint32_t, int32_t, int64_t* value) {
  return give<int64_t>(value, 1);
}

NPUSIM_EXPORT aclError aclGetCannAttribute(int32_t, int32_t* value) { return give(value, 1); }

NPUSIM_EXPORT aclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return kSuccess;
}

NPUSIM_EXPORT aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) { return give(can, 1); }

NPUSIM_EXPORT aclError aclrtDeviceEnablePeerAccess(int32_t, uint32_t) { return kSuccess; }

NPUSIM_EXPORT aclError aclrtDeviceGetBareTgid(int32_t* out) { return give(out, 0); }

// Settings that only change how a device computes or how long it waits: kept, and otherwise without effect.
NPUSIM_EXPORT aclError aclrtSetDeviceSatMode(int32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtGetDeviceSatMode(int32_t* mode) {
  return give(mode, 1);  // infinities and NaNs are kept, not saturated
}
NPUSIM_EXPORT aclError aclrtSetStreamOverflowSwitch(aclrtStream, uint32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtGetStreamOverflowSwitch(aclrtStream, uint32_t* on) {
  return give(on, uint32_t{0});
}
NPUSIM_EXPORT aclError aclrtSetOpWaitTimeout(uint32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtSetOpExecuteTimeOut(uint32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtSetOpExecuteTimeOutV2(uint64_t, uint64_t* actual) {
  if (actual) *actual = 0;
  return kSuccess;
}
NPUSIM_EXPORT aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtSetStreamAttribute(aclrtStream, int32_t, void*) { return kSuccess; }
NPUSIM_EXPORT aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logical) {
  return give(logical, user);
}
