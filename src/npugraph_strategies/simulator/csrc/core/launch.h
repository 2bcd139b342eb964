// What a library of kernels needs from the core: descriptors to read, and a way to put work on a stream.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "abi.h"

// Descriptors own everything they say, except the device memory they point at. torch_npu destroys them right after
// the first phase of an operator: a kernel keeps copies, never pointers to these.
struct aclTensor {
  std::vector<int64_t> sizes;          // elements per dimension
  std::vector<int64_t> strides;        // in elements
  int64_t offset = 0;                  // of the first element from the storage's base, in elements
  std::vector<int64_t> storage_sizes;  // elements; their product is the storage's extent
  aclDataType type = ACL_DT_UNDEFINED;
  int32_t format = 2;                  // 2 is ND
  void* base = nullptr;                // the storage's base on the device
};
struct aclTensorList { std::vector<const aclTensor*> tensors; };  // owns its tensors
struct aclScalar { aclDataType type; alignas(16) unsigned char value[16]; };
struct aclScalarList { std::vector<const aclScalar*> scalars; };  // owns its scalars
struct aclIntArray { std::vector<int64_t> values; };
struct aclFloatArray { std::vector<float> values; };
struct aclBoolArray { std::vector<bool> values; };

namespace npusim {

// A range of device memory that a task touches: it is checked against live allocations when the task runs.
struct Extent {
  const void* address = nullptr;
  uint64_t bytes = 0;
};

// One kernel task. `run` is called on the device thread, without locks; what it throws becomes the stream's failure.
struct Work {
  std::string name;             // as it appears in reports and in the trace, e.g. "aclnnAdd"
  std::vector<Extent> extents;  // everything it may read or write
  std::function<void()> run;
};

// Put `work` on `stream`: queued, stored in a capture, or taken as the replacement of a task that is being updated.
// Returns 0 or the code of the rule that was broken (already reported).
NPUSIM_SHARED aclError submit(aclrtStream stream, Work work);

// Report a misuse: one diagnosis on stderr, the text for aclGetRecentErrMsg; returns `code`, for `return fail(...)`.
NPUSIM_SHARED aclError fail(aclError code, const std::string& message);

// True when the configuration asks for kernels that do nothing (SimulatorConfig(kernels="null")).
NPUSIM_SHARED bool null_kernels();

// True when a kernel may be asked for: a pointer into device memory that is alive.
NPUSIM_SHARED bool is_device_memory(const void* address, uint64_t bytes);

}  // namespace npusim

// What phase one of an operator leaves for phase two.
struct aclOpExecutor {
  npusim::Work work;
  uint64_t workspace = 0;  // bytes asked for
};
