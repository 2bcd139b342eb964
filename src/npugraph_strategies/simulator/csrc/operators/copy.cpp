// Copies on the device: between shapes, strides and element types.
#include "operator.h"

using namespace npusim;

ACLNN(InplaceCopy, (Tensor self, Tensor source)) { self.copy_(source); }
ACLNN(Cast, (Tensor self, aclDataType type, Tensor out)) { put(out, self.to(scalar_type(type))); }
ACLNN(StridedSlice, (Tensor self, Ints begin, Ints end, Ints strides, Tensor out)) {
  Tensor slice = self;
  for (size_t d = 0; d < begin.size(); ++d) slice = slice.slice(static_cast<int64_t>(d), begin[d], end[d], strides[d]);
  put(out, slice);
}
