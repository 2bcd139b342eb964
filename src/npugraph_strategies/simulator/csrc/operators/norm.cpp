// Normalisations. They compute in float where the input is narrower, as the statistics they return are float.
#include "operator.h"

using namespace npusim;

namespace {

Tensor wide(const Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}
OptTensor wide(const OptTensor& tensor) { return tensor ? OptTensor(wide(*tensor)) : std::nullopt; }

void put_if(const OptTensor& out, const Tensor& value) {
  if (out && value.defined()) put(*out, value.reshape(out->sizes()));
}

std::array<bool, 3> mask_of(const Bools& mask) { return {mask.at(0), mask.at(1), mask.at(2)}; }

// The number of trailing dimensions that a weight of the given shape normalises over.
std::vector<int64_t> trailing(const Tensor& gamma) {
  std::vector<int64_t> dims;
  for (int64_t dim = 1; dim <= gamma.dim(); ++dim) dims.push_back(-dim);
  return dims;
}

Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps, const OptTensor& rstd) {
  const Tensor scale = at::rsqrt(wide(x).square().mean(trailing(gamma), true) + eps);
  put_if(rstd, scale);
  return wide(x) * scale * wide(gamma);
}

void layer_norm(const Tensor& input, const Ints& shape, const OptTensor& weight, const OptTensor& bias, double eps,
                const Tensor& out, const OptTensor& mean, const OptTensor& rstd) {
  const auto [value, center, scale] = at::native_layer_norm(wide(input), shape, wide(weight), wide(bias), eps);
  put(out, value);
  put_if(mean, center);
  put_if(rstd, scale);
}

void group_norm(const Tensor& self, const OptTensor& gamma, const OptTensor& beta, int64_t n, int64_t c, int64_t area,
                int64_t groups, double eps, const Tensor& out, const OptTensor& mean, const OptTensor& rstd) {
  const auto [value, center, scale] =
      at::native_group_norm(wide(self).contiguous(), wide(gamma), wide(beta), n, c, area, groups, eps);
  put(out, value);
  put_if(mean, center);
  put_if(rstd, scale);
}

}  // namespace

ACLNN(LayerNorm, (Tensor input, Ints shape, OptTensor weight, OptTensor bias, double eps, Tensor out, OptTensor mean,
                  OptTensor rstd)) {
  layer_norm(input, shape, weight, bias, eps, out, mean, rstd);
}
ACLNN(LayerNormBackward, (Tensor grad, Tensor input, Ints shape, Tensor mean, Tensor rstd, OptTensor weight,
                          OptTensor bias, Bools mask, OptTensor grad_input, OptTensor grad_weight,
                          OptTensor grad_bias)) {
  const auto [of_input, of_weight, of_bias] = at::native_layer_norm_backward(
      wide(grad), wide(input), shape, wide(mean), wide(rstd), wide(weight), wide(bias), mask_of(mask));
  put_if(grad_input, of_input);
  put_if(grad_weight, of_weight);
  put_if(grad_bias, of_bias);
}
ACLNN(AddLayerNorm, (Tensor a, Tensor b, Tensor gamma, Tensor beta, OptTensor bias, double eps, bool, Tensor out,
                     OptTensor mean, OptTensor rstd, OptTensor sum)) {
  Tensor x = wide(a) + wide(b);
  if (bias) x = x + wide(*bias);
  layer_norm(x, gamma.sizes().vec(), gamma, beta, eps, out, mean, rstd);
  put_if(sum, x);
}

ACLNN(RmsNorm, (Tensor x, Tensor gamma, double eps, Tensor out, OptTensor rstd)) {
  put(out, rms_norm(x, gamma, eps, rstd));
}
ACLNN(GemmaRmsNorm, (Tensor x, Tensor gamma, double eps, Tensor out, OptTensor rstd)) {
  put(out, rms_norm(x, wide(gamma) + 1, eps, rstd));
}
ACLNN(RmsNormGrad, (Tensor grad, Tensor x, Tensor rstd, Tensor gamma, OptTensor grad_x, OptTensor grad_gamma)) {
  const Tensor scale = wide(rstd), normed = wide(x) * scale, weighted = wide(grad) * wide(gamma);
  put_if(grad_x, scale * (weighted - normed * (weighted * normed).mean(trailing(gamma), true)));
  put_if(grad_gamma, at::sum_to(wide(grad) * normed, gamma.sizes()));
}
ACLNN(AddRmsNorm, (Tensor a, Tensor b, Tensor gamma, double eps, Tensor out, OptTensor rstd, Tensor sum)) {
  put(sum, wide(a) + wide(b));
  put(out, rms_norm(sum, gamma, eps, rstd));
}
ACLNN(AddRmsNormCast, (Tensor a, Tensor b, Tensor gamma, double eps, Tensor out_float, Tensor out, OptTensor rstd,
                       Tensor sum)) {
  put(sum, wide(a) + wide(b));
  put(out, rms_norm(sum, gamma, eps, rstd));
  put(out_float, out);
}
ACLNN(InplaceAddRmsNorm, (Tensor x, Tensor residual, Tensor gamma, double eps, OptTensor rstd)) {
  residual.add_(x);
  put(x, rms_norm(residual, gamma, eps, rstd));
}

ACLNN(BatchNorm, (Tensor input, OptTensor weight, OptTensor bias, OptTensor mean, OptTensor var, bool training,
                  double momentum, double eps, Tensor out, OptTensor save_mean, OptTensor save_rstd)) {
  const OptTensor running_mean = wide(mean), running_var = wide(var);
  const auto [value, center, scale] = at::native_batch_norm(wide(input), wide(weight), wide(bias), running_mean,
                                                            running_var, training, momentum, eps);
  if (training && mean) mean->copy_(*running_mean);
  if (training && var) var->copy_(*running_var);
  put(out, value);
  if (training) put_if(save_mean, center);
  if (training) put_if(save_rstd, scale);
}
ACLNN(BatchNormBackward, (Tensor grad, Tensor input, OptTensor weight, OptTensor mean, OptTensor var,
                          OptTensor save_mean, OptTensor save_rstd, bool training, double eps, Bools mask,
                          OptTensor grad_input, OptTensor grad_weight, OptTensor grad_bias)) {
  const auto [of_input, of_weight, of_bias] = at::native_batch_norm_backward(
      wide(grad), wide(input), wide(weight), wide(mean), wide(var), save_mean, save_rstd, training, eps,
      mask_of(mask));
  put_if(grad_input, of_input);
  put_if(grad_weight, of_weight);
  put_if(grad_bias, of_bias);
}
ACLNN(GroupNorm, (Tensor self, OptTensor gamma, OptTensor beta, int64_t n, int64_t c, int64_t area, int64_t groups,
                  double eps, Tensor out, OptTensor mean, OptTensor rstd)) {
  group_norm(self, gamma, beta, n, c, area, groups, eps, out, mean, rstd);
}
ACLNN(GroupNormBackward, (Tensor grad, Tensor input, Tensor mean, Tensor rstd, OptTensor gamma, int64_t n, int64_t c,
                          int64_t area, int64_t groups, Bools mask, OptTensor grad_input, OptTensor grad_gamma,
                          OptTensor grad_beta)) {
  const auto [of_input, of_gamma, of_beta] = at::native_group_norm_backward(
      wide(grad).contiguous(), wide(input).contiguous(), wide(mean), wide(rstd), wide(gamma), n, c, area, groups,
      mask_of(mask));
  put_if(grad_input, of_input);
  put_if(grad_gamma, of_gamma);
  put_if(grad_beta, of_beta);
}
ACLNN(GroupNormSilu, (Tensor self, OptTensor gamma, OptTensor beta, int64_t groups, double eps, Tensor out,
                      OptTensor mean, OptTensor rstd)) {
  const int64_t n = self.size(0), c = self.size(1);
  group_norm(self, gamma, beta, n, c, self.numel() / (n * c), groups, eps, out, mean, rstd);
  at::silu_(out);
}
ACLNN(DeepNorm, (Tensor x, Tensor residual, Tensor beta, Tensor gamma, double alpha, double eps, OptTensor mean,
                 OptTensor rstd, Tensor out)) {
  layer_norm(alpha * wide(x) + wide(residual), gamma.sizes().vec(), gamma, beta, eps, out, mean, rstd);
}
