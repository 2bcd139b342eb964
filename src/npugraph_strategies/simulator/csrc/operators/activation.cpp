// Activations and their gradients.
#include "operator.h"

using namespace npusim;

ACLNN(Relu, (Tensor self, Tensor out)) { put(out, at::relu(self)); }
ACLNN(InplaceRelu, (Tensor self)) { self.relu_(); }
ACLNN(Silu, (Tensor self, Tensor out)) { put(out, at::silu(self)); }
ACLNN(SiluBackward, (Tensor grad, Tensor self, Tensor out)) { put(out, at::silu_backward(grad, self)); }
ACLNN(Sigmoid, (Tensor self, Tensor out)) { put(out, at::sigmoid(self)); }
ACLNN(InplaceSigmoid, (Tensor self)) { self.sigmoid_(); }
ACLNN(SigmoidBackward, (Tensor grad, Tensor output, Tensor out)) { put(out, at::sigmoid_backward(grad, output)); }
ACLNN(Tanh, (Tensor self, Tensor out)) { put(out, at::tanh(self)); }
ACLNN(InplaceTanh, (Tensor self)) { self.tanh_(); }
ACLNN(TanhBackward, (Tensor grad, Tensor output, Tensor out)) { put(out, at::tanh_backward(grad, output)); }
ACLNN(Mish, (Tensor self, Tensor out)) { put(out, at::mish(self)); }
ACLNN(InplaceMish, (Tensor self)) { at::mish_(self); }
ACLNN(MishBackward, (Tensor grad, Tensor self, Tensor out)) { put(out, at::mish_backward(grad, self)); }

ACLNN(Gelu, (Tensor self, Tensor out)) { put(out, at::gelu(self)); }
ACLNN(GeluBackward, (Tensor grad, Tensor self, Tensor out)) { put(out, at::gelu_backward(grad, self)); }
ACLNN(GeluV2, (Tensor self, int64_t tanh, Tensor out)) { put(out, at::gelu(self, tanh ? "tanh" : "none")); }
ACLNN(GeluBackwardV2, (Tensor grad, Tensor self, Text approximate, Tensor out)) {
  put(out, at::gelu_backward(grad, self, approximate));
}
ACLNN(FastGelu, (Tensor self, Tensor out)) { put(out, self * at::sigmoid(1.702 * self)); }
ACLNN(FastGeluBackward, (Tensor grad, Tensor self, Tensor out)) {
  const Tensor gate = at::sigmoid(1.702 * self);
  put(out, grad * gate * (1 + 1.702 * self * (1 - gate)));
}

ACLNN(Threshold, (Tensor self, Scalar threshold, Scalar value, Tensor out)) {
  put(out, at::threshold(self, threshold, value));
}
ACLNN(InplaceThreshold, (Tensor self, Scalar threshold, Scalar value)) { at::threshold_(self, threshold, value); }
ACLNN(ThresholdBackward, (Tensor grad, Tensor self, Scalar threshold, Tensor out)) {
  put(out, at::threshold_backward(grad, self, threshold));
}
ACLNN(LeakyRelu, (Tensor self, Scalar slope, Tensor out)) { put(out, at::leaky_relu(self, slope)); }
ACLNN(InplaceLeakyRelu, (Tensor self, Scalar slope)) { at::leaky_relu_(self, slope); }
ACLNN(LeakyReluBackward, (Tensor grad, Tensor self, Scalar slope, bool of_result, Tensor out)) {
  put(out, at::leaky_relu_backward(grad, self, slope, of_result));
}
ACLNN(Prelu, (Tensor self, Tensor weight, Tensor out)) { put(out, at::_prelu_kernel(self, weight)); }
ACLNN(PreluBackward, (Tensor grad, Tensor self, Tensor weight, Tensor out, Tensor grad_weight)) {
  Ints shape(self.dim(), 1);
  if (weight.numel() > 1) shape.at(1) = weight.numel();
  const auto [of_self, of_weight] = at::_prelu_kernel_backward(grad, self, weight.reshape(shape));
  put(out, of_self);
  put(grad_weight, at::sum_to(of_weight, shape).reshape(grad_weight.sizes()));
}

ACLNN(Elu, (Tensor self, Scalar alpha, Scalar scale, Scalar input_scale, Tensor out)) {
  put(out, at::elu(self, alpha, scale, input_scale));
}
ACLNN(InplaceElu, (Tensor self, Scalar alpha, Scalar scale, Scalar input_scale)) {
  at::elu_(self, alpha, scale, input_scale);
}
ACLNN(EluBackward, (Tensor grad, Scalar alpha, Scalar scale, Scalar input_scale, bool of_result, Tensor self,
                    Tensor out)) {
  put(out, at::elu_backward(grad, alpha, scale, input_scale, of_result, self));
}
ACLNN(Celu, (Tensor self, Scalar alpha, Tensor out)) { put(out, at::celu(self, alpha)); }
ACLNN(InplaceCelu, (Tensor self, Scalar alpha)) { at::celu_(self, alpha); }

ACLNN(Hardswish, (Tensor self, Tensor out)) { put(out, at::hardswish(self)); }
ACLNN(InplaceHardswish, (Tensor self)) { at::hardswish_(self); }
ACLNN(HardswishBackward, (Tensor grad, Tensor self, Tensor out)) { put(out, at::hardswish_backward(grad, self)); }
ACLNN(HardswishBackwardV2, (Tensor grad, Tensor self, Tensor out)) { put(out, at::hardswish_backward(grad, self)); }
ACLNN(Hardsigmoid, (Tensor self, Tensor out)) { put(out, at::hardsigmoid(self)); }
ACLNN(InplaceHardsigmoid, (Tensor self)) { at::hardsigmoid_(self); }
ACLNN(HardsigmoidBackward, (Tensor grad, Tensor self, Tensor out)) { put(out, at::hardsigmoid_backward(grad, self)); }
ACLNN(Hardtanh, (Tensor self, Scalar low, Scalar high, Tensor out)) { put(out, at::hardtanh(self, low, high)); }
ACLNN(InplaceHardtanh, (Tensor self, Scalar low, Scalar high)) { at::hardtanh_(self, low, high); }
ACLNN(HardtanhBackward, (Tensor grad, Tensor self, Scalar low, Scalar high, Tensor out)) {
  put(out, at::hardtanh_backward(grad, self, low, high));
}
ACLNN(Hardshrink, (Tensor self, Scalar lambda, Tensor out)) { put(out, at::hardshrink(self, lambda)); }
ACLNN(HardshrinkBackward, (Tensor grad, Tensor self, Scalar lambda, Tensor out)) {
  put(out, at::hardshrink_backward(grad, self, lambda));
}
ACLNN(Softshrink, (Tensor self, Scalar lambda, Tensor out)) { put(out, at::softshrink(self, lambda)); }
ACLNN(SoftshrinkBackward, (Tensor grad, Tensor self, Scalar lambda, Tensor out)) {
  put(out, at::softshrink_backward(grad, self, lambda));
}
ACLNN(Softplus, (Tensor self, Scalar beta, Scalar threshold, Tensor out)) {
  put(out, at::softplus(self, beta, threshold));
}
ACLNN(SoftplusBackward, (Tensor grad, Tensor self, Scalar beta, Scalar threshold, Tensor out)) {
  put(out, at::softplus_backward(grad, self, beta, threshold));
}
ACLNN(LogSigmoid, (Tensor self, Tensor out)) { put(out, at::log_sigmoid(self)); }
ACLNN(LogSigmoidForward, (Tensor self, Tensor out, Tensor)) { put(out, at::log_sigmoid(self)); }
ACLNN(LogSigmoidBackward, (Tensor grad, Tensor self, Tensor, Tensor out)) { put(out, grad * at::sigmoid(-self)); }

ACLNN(Glu, (Tensor self, int64_t dim, Tensor out)) { put(out, at::glu(self, dim)); }
ACLNN(GluBackward, (Tensor grad, Tensor self, int64_t dim, Tensor out)) { put(out, at::glu_backward(grad, self, dim)); }
ACLNN(SwiGlu, (Tensor self, int64_t dim, Tensor out)) {
  const Tensors halves = self.chunk(2, dim);
  put(out, at::silu(halves[0]) * halves[1]);
}
ACLNN(SwiGluGrad, (Tensor grad, Tensor self, int64_t dim, Tensor out)) {
  const Tensors halves = self.chunk(2, dim);
  put(out, at::cat({at::silu_backward(grad * halves[1], halves[0]), grad * at::silu(halves[0])}, dim));
}
ACLNN(GeGluV3, (Tensor self, int64_t dim, int64_t tanh, bool left, Tensor out, Tensor gelu)) {
  const Tensors halves = self.chunk(2, dim);
  put(gelu, at::gelu(halves[left ? 0 : 1], tanh ? "tanh" : "none"));
  put(out, halves[left ? 1 : 0] * gelu);
}
ACLNN(GeGluV3Backward, (Tensor grad, Tensor self, Tensor gelu, int64_t dim, int64_t tanh, bool left, Tensor out)) {
  const Tensors halves = self.chunk(2, dim);
  const Tensor linear = grad * gelu;
  const Tensor active = at::gelu_backward(grad * halves[left ? 1 : 0], halves[left ? 0 : 1], tanh ? "tanh" : "none");
  put(out, left ? at::cat({active, linear}, dim) : at::cat({linear, active}, dim));
}
