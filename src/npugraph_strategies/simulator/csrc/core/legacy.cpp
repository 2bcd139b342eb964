// The parts of the driver that the simulator does not do: the older operator interface, shareable and virtual memory,
// profiling, dumps and hand-made kernels. The symbols exist since torch_npu links them; a call says what is missing.
#include <stdexcept>

#include "model.h"
#include "report.h"
#include "scheduler.h"

using namespace npusim;

namespace {

struct Opaque {};  // stands for descriptors that only travel between calls of this file

aclError missing(const char* what) { return fail(kNotSupported, std::string(what) + " is not simulated"); }

// An operator of the older path fails when its turn comes, or at the end of the capture that it would be part of. The
// launch itself succeeds, since torch_npu's task queue does not survive one that fails: it would drop all later ones.
aclError fail_later(const char* name, aclrtStream handle) {
  const std::string what = std::string("the operator ") + name +
                           " takes the older path (aclopCompileAndExecute), which is not simulated";
  if (null_kernels()) return fail(kNotSupported, what);
  {
    const Scheduler::Lock lock(scheduler().mutex);
    const StreamPtr stream = find_stream(handle);
    if (stream && stream->capture) {
      tell(what);
      stream->capture->breaks(what);
      return kSuccess;
    }
  }
  return submit(handle, Work{name, {}, [what] { throw std::runtime_error(what); }});
}

}  // namespace

// An operator comes here when torch_npu finds no aclnn symbol for it, or has none: the name tells which is wanted.
NPUSIM_EXPORT aclError aclopCompileAndExecute(const char* name, int, const void*, const void*, int, const void*,
                                              const void*, const void*, int, int, const char*, aclrtStream stream) {
  return fail_later(name, stream);
}

NPUSIM_EXPORT aclError aclopCompileAndExecuteV2(const char* name, int, void*, void*, int, void*, void*, void*, int, int,
                                                const char*, aclrtStream stream) {
  return fail_later(name, stream);
}

NPUSIM_EXPORT void* aclopCreateAttr() { return new Opaque; }
NPUSIM_EXPORT void aclopDestroyAttr(const void* attributes) { delete static_cast<const Opaque*>(attributes); }
NPUSIM_EXPORT aclError aclopSetAttrBool(void*, const char*, uint8_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrDataType(void*, const char*, int32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrFloat(void*, const char*, float) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrInt(void*, const char*, int64_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrListBool(void*, const char*, int, const uint8_t*) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrListFloat(void*, const char*, int, const float*) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrListInt(void*, const char*, int, const int64_t*) { return kSuccess; }
NPUSIM_EXPORT aclError aclopSetAttrListListInt(void*, const char*, int, const int*, const int64_t* const*) {
  return kSuccess;
}
NPUSIM_EXPORT aclError aclopSetAttrString(void*, const char*, const char*) { return kSuccess; }

NPUSIM_EXPORT void* aclCreateTensorDesc(int32_t, int, const int64_t*, int32_t) { return new Opaque; }
NPUSIM_EXPORT void aclDestroyTensorDesc(const void* descriptor) { delete static_cast<const Opaque*>(descriptor); }
NPUSIM_EXPORT void aclSetTensorDescName(void*, const char*) {}
NPUSIM_EXPORT aclError aclSetTensorFormat(void*, int32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclSetTensorPlaceMent(void*, int32_t) { return kSuccess; }
NPUSIM_EXPORT aclError aclSetTensorShape(void*, int, const int64_t*) { return kSuccess; }
NPUSIM_EXPORT aclError aclGetTensorDescDimV2(const void*, size_t, int64_t*) { return missing("a shape of the older path"); }
NPUSIM_EXPORT int32_t aclGetTensorDescFormat(const void*) { return -1; }
NPUSIM_EXPORT size_t aclGetTensorDescNumDims(const void*) { return 0; }
NPUSIM_EXPORT int32_t aclGetTensorDescType(const void*) { return ACL_DT_UNDEFINED; }
NPUSIM_EXPORT void* aclCreateDataBuffer(void*, size_t) { return new Opaque; }
NPUSIM_EXPORT aclError aclDestroyDataBuffer(const void* buffer) {
  delete static_cast<const Opaque*>(buffer);
  return kSuccess;
}

NPUSIM_EXPORT aclError aclmdlInitDump() { return kSuccess; }
NPUSIM_EXPORT aclError aclmdlSetDump(const char*) { return missing("a dump of tensors"); }
NPUSIM_EXPORT aclError aclmdlFinalizeDump() { return kSuccess; }
NPUSIM_EXPORT void aclAppLog(int32_t, const char*, const char*, uint32_t, const char*, ...) {}

NPUSIM_EXPORT aclError aclrtReserveMemAddress(void**, size_t, size_t, void*, uint64_t) {
  return missing("virtual memory (expandable segments)");
}
NPUSIM_EXPORT aclError aclrtReleaseMemAddress(void*) { return missing("virtual memory (expandable segments)"); }
NPUSIM_EXPORT aclError aclrtMallocPhysical(void**, size_t, const void*, uint64_t) {
  return missing("virtual memory (expandable segments)");
}
NPUSIM_EXPORT aclError aclrtFreePhysical(void*) { return missing("virtual memory (expandable segments)"); }
NPUSIM_EXPORT aclError aclrtMapMem(void*, size_t, size_t, void*, uint64_t) {
  return missing("virtual memory (expandable segments)");
}
NPUSIM_EXPORT aclError aclrtUnmapMem(void*) { return missing("virtual memory (expandable segments)"); }
NPUSIM_EXPORT aclError aclrtMemExportToShareableHandle(void*, int32_t, uint64_t, uint64_t*) {
  return missing("memory shared between processes");
}
NPUSIM_EXPORT aclError aclrtMemImportFromShareableHandle(uint64_t, int32_t, void**) {
  return missing("memory shared between processes");
}
NPUSIM_EXPORT aclError aclrtMemSetPidToShareableHandle(uint64_t, int32_t*, size_t) {
  return missing("memory shared between processes");
}

NPUSIM_EXPORT aclError aclrtBinaryGetFunction(const void*, const char*, void**) { return missing("a kernel's binary"); }
NPUSIM_EXPORT aclError aclrtBinaryLoadFromData(const void*, size_t, const void*, void**) {
  return missing("a kernel's binary");
}
NPUSIM_EXPORT aclError aclrtGetFunctionAddr(void*, void**, void**) { return missing("a kernel's binary"); }
NPUSIM_EXPORT aclError rtDevBinaryRegister(const void*, void**) { return missing("a kernel's binary"); }
NPUSIM_EXPORT aclError rtFunctionRegister(void*, const void*, const char*, const void*, uint32_t) {
  return missing("a kernel's binary");
}
NPUSIM_EXPORT aclError rtKernelLaunch(const void*, uint32_t, void*, uint32_t, void*, void*) {
  return missing("a kernel's binary");
}
NPUSIM_EXPORT aclError rtGetC2cCtrlAddr(uint64_t*, uint32_t*) { return missing("synchronisation between cores"); }

NPUSIM_EXPORT uint64_t MsprofSysCycleTime() { return 0; }
NPUSIM_EXPORT uint64_t MsprofGetHashId(const char*, size_t) { return 0; }
NPUSIM_EXPORT int32_t MsprofRegisterCallback(uint32_t, void*) { return 0; }
NPUSIM_EXPORT int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
NPUSIM_EXPORT int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
NPUSIM_EXPORT int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
