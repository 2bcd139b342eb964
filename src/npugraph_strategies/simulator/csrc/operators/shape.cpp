// Joining, repeating, moving and padding.
#include "operator.h"

using namespace npusim;

ACLNN(Cat, (Tensors tensors, int64_t dim, Tensor out)) { put(out, at::cat(tensors, dim)); }
ACLNN(Stack, (Tensors tensors, int64_t dim, Tensor out)) { put(out, at::stack(tensors, dim)); }
ACLNN(Repeat, (Tensor self, Ints repeats, Tensor out)) { put(out, self.repeat(repeats)); }
ACLNN(RepeatInterleave, (Tensor self, Tensor repeats, int64_t, Tensor out)) {
  put(out, at::repeat_interleave(self, repeats));
}
ACLNN(RepeatInterleaveWithDim, (Tensor self, Tensor repeats, int64_t dim, int64_t, Tensor out)) {
  put(out, at::repeat_interleave(self, repeats, dim));
}
ACLNN(RepeatInterleaveInt, (Tensor self, int64_t repeats, int64_t, Tensor out)) {
  put(out, at::repeat_interleave(self, repeats));
}
ACLNN(RepeatInterleaveIntWithDim, (Tensor self, int64_t repeats, int64_t dim, int64_t, Tensor out)) {
  put(out, at::repeat_interleave(self, repeats, dim));
}
ACLNN(RepeatInterleaveTensor, (Tensor repeats, int64_t, Tensor out)) { put(out, at::repeat_interleave(repeats)); }
ACLNN(RepeatInterleaveGrad, (Tensor grad, Tensor repeats, int64_t axis, Tensor out)) {
  const Tensor counts = repeats.numel() == 1 ? repeats.expand({out.size(axis)}) : repeats;
  put(out, at::zeros(out.sizes(), grad.options()).index_add_(axis, at::repeat_interleave(counts), grad));
}
ACLNN(Roll, (Tensor self, Ints shifts, Ints dims, Tensor out)) { put(out, at::roll(self, shifts, dims)); }
ACLNN(Flip, (Tensor self, Ints dims, Tensor out)) { put(out, at::flip(self, dims)); }
ACLNN(ChannelShuffle, (Tensor self, int64_t groups, Tensor out)) { put(out, at::channel_shuffle(self, groups)); }

ACLNN(ConstantPadNd, (Tensor self, Ints padding, Scalar value, Tensor out)) {
  put(out, at::constant_pad_nd(self, padding, value));
}

#define PADDING(NAME, FUNCTION)                                                                                 \
  ACLNN(NAME, (Tensor self, Ints padding, Tensor out)) { put(out, at::FUNCTION(self, padding)); }               \
  ACLNN(NAME##Backward, (Tensor grad, Tensor self, Ints padding, Tensor out)) {                                 \
    put(out, at::FUNCTION##_backward(grad, self, padding));                                                     \
  }
PADDING(ReflectionPad1d, reflection_pad1d)
PADDING(ReflectionPad2d, reflection_pad2d)
PADDING(ReflectionPad3d, reflection_pad3d)
PADDING(ReplicationPad1d, replication_pad1d)
PADDING(ReplicationPad2d, replication_pad2d)
PADDING(ReplicationPad3d, replication_pad3d)
