#include "operator.h"

namespace npusim {

at::ScalarType scalar_type(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return at::kFloat;
    case ACL_FLOAT16: return at::kHalf;
    case ACL_INT8: return at::kChar;
    case ACL_INT32: return at::kInt;
    case ACL_UINT8: return at::kByte;
    case ACL_INT16: return at::kShort;
    case ACL_UINT16: return at::kUInt16;
    case ACL_UINT32: return at::kUInt32;
    case ACL_INT64: return at::kLong;
    case ACL_UINT64: return at::kUInt64;
    case ACL_DOUBLE: return at::kDouble;
    case ACL_BOOL: return at::kBool;
    case ACL_COMPLEX64: return at::kComplexFloat;
    case ACL_COMPLEX128: return at::kComplexDouble;
    case ACL_COMPLEX32: return at::kComplexHalf;
    case ACL_BF16: return at::kBFloat16;
    default: throw std::invalid_argument("the simulator has no element type number " + std::to_string(type));
  }
}

at::Tensor view_of(const aclTensor& descriptor) {
  auto* base = static_cast<char*>(descriptor.base) + descriptor.offset * element_bytes(descriptor.type);
  return at::from_blob(base, descriptor.sizes, descriptor.strides, at::TensorOptions(scalar_type(descriptor.type)));
}

Extent extent_of(const aclTensor& descriptor) {
  const int64_t bytes = static_cast<int64_t>(element_bytes(descriptor.type));
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < descriptor.sizes.size(); ++d) {
    if (descriptor.sizes[d] == 0) return {descriptor.base, 0};
    const int64_t span = (descriptor.sizes[d] - 1) * descriptor.strides[d];
    (span < 0 ? low : high) += span;
  }
  const char* base = static_cast<const char*>(descriptor.base);
  return {base + (descriptor.offset + low) * bytes, static_cast<uint64_t>((high - low + 1) * bytes)};
}

at::Scalar scalar_of(const aclScalar& scalar) {
  const at::ScalarType type = scalar_type(scalar.type);
  return at::from_blob(const_cast<unsigned char*>(scalar.value), {}, at::TensorOptions(type)).item();
}

void put(const at::Tensor& out, const at::Tensor& value) {
  TORCH_CHECK(out.sizes() == value.sizes(), "the result has shape ", value.sizes(), " and the output has shape ",
              out.sizes());
  out.copy_(value);
}

aclError launch(void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  if (!executor) return fail(kNullArgument, "an operator is launched without the executor of its first phase");
  std::unique_ptr<aclOpExecutor> owned(executor);
  const uint64_t wanted = owned->workspace;
  if (size < wanted)
    return fail(kInvalidArgument, owned->work.name + ": the workspace has " + std::to_string(size) + " bytes, and " +
                                      std::to_string(wanted) + " were asked for");
  if (wanted) owned->work.extents.push_back({workspace, wanted});
  return submit(stream, std::move(owned->work));
}

}  // namespace npusim
