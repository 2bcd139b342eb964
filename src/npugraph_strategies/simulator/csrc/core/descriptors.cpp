// Descriptors of tensors, scalars and arrays: values that are copied in and owned.
#include <cstring>

#include "launch.h"
#include "report.h"

using namespace npusim;

namespace {

// torch_npu releases every argument of an operator alike, those left out included: null is nothing to do.
template <typename T>
aclError destroy(const T* one) {
  delete one;
  return kSuccess;
}

// A list of copies of `count` values.
template <typename List, typename T>
List* list_of(const T* values, uint64_t count) {
  if (count && !values) {
    fail(kParamInvalid, "a list of " + std::to_string(count) + " values that are null");
    return nullptr;
  }
  auto* made = new List;
  auto& [items] = *made;
  items.assign(values, values + count);
  return made;
}

}  // namespace

NPUSIM_EXPORT aclTensor* aclCreateTensor(const int64_t* sizes, uint64_t dimensions, aclDataType type,
                                         const int64_t* strides, int64_t offset, int32_t format,
                                         const int64_t* storage_sizes, uint64_t storage_dimensions, void* base) {
  if ((dimensions && !sizes) || !element_bytes(type)) {
    fail(kParamInvalid, "a tensor's descriptor: " + (element_bytes(type) ? std::string("its sizes are null")
                                                                        : "unknown element type " + std::to_string(type)));
    return nullptr;
  }
  auto* made = new aclTensor;
  made->sizes.assign(sizes, sizes + dimensions);
  if (strides) {
    made->strides.assign(strides, strides + dimensions);
  } else {
    made->strides.assign(dimensions, 1);
    for (size_t d = dimensions; d-- > 1;) made->strides[d - 1] = made->strides[d] * made->sizes[d];
  }
  made->offset = offset;
  if (storage_sizes) made->storage_sizes.assign(storage_sizes, storage_sizes + storage_dimensions);
  made->type = type;
  made->format = format;
  made->base = base;
  return made;
}

NPUSIM_EXPORT aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t count) {
  return list_of<aclTensorList>(tensors, count);
}

NPUSIM_EXPORT aclScalar* aclCreateScalar(void* value, aclDataType type) {
  const size_t bytes = element_bytes(type);
  if (!value || !bytes) {
    fail(kParamInvalid, "a scalar of element type " + std::to_string(type));
    return nullptr;
  }
  auto* made = new aclScalar{type, {}};
  std::memcpy(made->value, value, bytes);
  return made;
}

NPUSIM_EXPORT aclScalarList* aclCreateScalarList(const aclScalar* const* scalars, uint64_t count) {
  return list_of<aclScalarList>(scalars, count);
}

NPUSIM_EXPORT aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return list_of<aclIntArray>(values, count);
}

NPUSIM_EXPORT aclFloatArray* aclCreateFloatArray(const float* values, uint64_t count) {
  return list_of<aclFloatArray>(values, count);
}

NPUSIM_EXPORT aclBoolArray* aclCreateBoolArray(const bool* values, uint64_t count) {
  return list_of<aclBoolArray>(values, count);
}

NPUSIM_EXPORT aclError aclDestroyTensor(const aclTensor* one) { return destroy(one); }
NPUSIM_EXPORT aclError aclDestroyScalar(const aclScalar* one) { return destroy(one); }
NPUSIM_EXPORT aclError aclDestroyIntArray(const aclIntArray* one) { return destroy(one); }
NPUSIM_EXPORT aclError aclDestroyFloatArray(const aclFloatArray* one) { return destroy(one); }
NPUSIM_EXPORT aclError aclDestroyBoolArray(const aclBoolArray* one) { return destroy(one); }

NPUSIM_EXPORT aclError aclDestroyTensorList(const aclTensorList* list) {
  if (list)
    for (const aclTensor* tensor : list->tensors) delete tensor;
  return destroy(list);
}

NPUSIM_EXPORT aclError aclDestroyScalarList(const aclScalarList* list) {
  if (list)
    for (const aclScalar* scalar : list->scalars) delete scalar;
  return destroy(list);
}

NPUSIM_EXPORT aclError aclDestroyAclOpExecutor(aclOpExecutor* executor) { return destroy(executor); }

NPUSIM_EXPORT aclError aclGetViewShape(const aclTensor* tensor, int64_t** sizes, uint64_t* dimensions) {
  if (!tensor || !sizes || !dimensions) return fail(kParamInvalid, "asking a tensor's descriptor for its shape");
  *dimensions = tensor->sizes.size();
  *sizes = new int64_t[tensor->sizes.size()];  // the caller's, by contract
  std::memcpy(*sizes, tensor->sizes.data(), tensor->sizes.size() * sizeof(int64_t));
  return kSuccess;
}
