// The part of the driver's C interface that several files share: handles, codes, data types.
//
// Everything here is declared from observed behaviour: from the symbols that torch_npu asks for, from the calls it
// makes, and from public documentation of the numbers. No vendor header was used.
#pragma once

#include <cstddef>
#include <cstdint>

#define NPUSIM_EXPORT extern "C" __attribute__((visibility("default")))
#define NPUSIM_SHARED __attribute__((visibility("default")))

using aclError = int32_t;
using aclrtStream = void*;
using aclrtEvent = void*;
using aclrtContext = void*;
using aclmdlRI = void*;
using aclrtTaskGrp = void*;

struct aclTensor;
struct aclTensorList;
struct aclScalar;
struct aclScalarList;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclOpExecutor;

// Numbers of element types as they cross the interface.
enum aclDataType : int32_t {
  ACL_DT_UNDEFINED = -1,
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_UINT16 = 7,
  ACL_UINT32 = 8,
  ACL_INT64 = 9,
  ACL_UINT64 = 10,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_STRING = 13,
  ACL_COMPLEX64 = 16,
  ACL_COMPLEX128 = 17,
  ACL_BF16 = 27,
  ACL_COMPLEX32 = 33,
};

namespace npusim {

// A handle for a new object. Handles are numbers that are given once: a stale one is never taken for a later object's.
void* new_handle();

// Bytes of one element, or 0 for a type that the simulator does not know.
NPUSIM_SHARED size_t element_bytes(aclDataType type);

}  // namespace npusim
