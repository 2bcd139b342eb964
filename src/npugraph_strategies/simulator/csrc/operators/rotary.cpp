// Rotary position embedding. Mode 0 pairs the halves of a row, mode 1 pairs neighbours, mode 2 its quarters.
#include "operator.h"

using namespace npusim;

namespace {

Tensor rotated(const Tensor& x, int64_t mode) {
  if (mode == 1) {
    const Tensor even = x.slice(-1, 0, std::nullopt, 2), odd = x.slice(-1, 1, std::nullopt, 2);
    return at::stack({-odd, even}, -1).flatten(-2);
  }
  TORCH_CHECK(mode == 0 || mode == 2, "the simulator has no rotary mode number ", mode);
  Tensors parts = x.chunk(mode == 0 ? 2 : 4, -1);
  for (size_t i = 0; i < parts.size(); i += 2) parts[i] = std::exchange(parts[i + 1], parts[i]).neg();
  return at::cat(parts, -1);
}

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t mode) {
  return x * cos + rotated(x, mode) * sin;
}

}  // namespace

ACLNN(RotaryPositionEmbedding, (Tensor x, Tensor cos, Tensor sin, int64_t mode, Tensor out)) {
  put(out, rotary(x, cos, sin, mode));
}
ACLNN(RotaryPositionEmbeddingV2, (Tensor x, Tensor cos, Tensor sin, int64_t mode, OptTensor, Tensor out)) {
  put(out, rotary(x, cos, sin, mode));
}
ACLNN(RotaryPositionEmbeddingGrad, (Tensor grad, Tensor cos, Tensor sin, OptTensor x, int64_t mode, Tensor grad_x,
                                    OptTensor grad_cos, OptTensor grad_sin)) {
  // Rotating is linear and its transpose is its negative.
  put(grad_x, grad * cos - rotated(grad * sin, mode));
  if (x && grad_cos) put(*grad_cos, at::sum_to(grad * *x, cos.sizes()));
  if (x && grad_sin) put(*grad_sin, at::sum_to(grad * rotated(*x, mode), sin.sizes()));
}
