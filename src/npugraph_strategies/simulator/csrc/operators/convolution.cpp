// Convolution, pooling and resizing.
#include "operator.h"

using namespace npusim;

namespace {

std::optional<int64_t> divisor_of(int64_t divisor) { return divisor ? std::optional(divisor) : std::nullopt; }

// A factor of zero, or less, is to be derived from the sizes.
std::optional<double> factor_of(double factor) { return factor > 0 ? std::optional(factor) : std::nullopt; }

}  // namespace

ACLNN(Convolution, (Tensor input, Tensor weight, OptTensor bias, Ints stride, Ints padding, Ints dilation,
                    bool transposed, Ints output_padding, int64_t groups, Tensor out, int8_t)) {
  put(out, at::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups));
}
ACLNN(ConvolutionBackward, (Tensor grad, Tensor input, Tensor weight, OptInts bias_sizes, Ints stride, Ints padding,
                            Ints dilation, bool transposed, Ints output_padding, int64_t groups, Bools mask, int8_t,
                            OptTensor grad_input, OptTensor grad_weight, OptTensor grad_bias)) {
  const at::OptionalIntArrayRef sizes = bias_sizes ? at::OptionalIntArrayRef(*bias_sizes) : std::nullopt;
  const auto [of_input, of_weight, of_bias] =
      at::convolution_backward(grad, input, weight, sizes, stride, padding, dilation, transposed, output_padding,
                               groups, {mask.at(0), mask.at(1), mask.at(2)});
  if (mask.at(0)) put(*grad_input, of_input);
  if (mask.at(1)) put(*grad_weight, of_weight);
  if (mask.at(2)) put(*grad_bias, of_bias);
}
ACLNN(Im2col, (Tensor self, Ints kernel, Ints dilation, Ints padding, Ints stride, Tensor out)) {
  put(out, at::im2col(self, kernel, dilation, padding, stride));
}
ACLNN(Im2colBackward, (Tensor grad, Ints size, Ints kernel, Ints dilation, Ints padding, Ints stride, Tensor out)) {
  put(out, at::col2im(grad, size, kernel, dilation, padding, stride));
}

ACLNN(AdaptiveAvgPool2d, (Tensor self, Ints size, Tensor out)) { put(out, at::_adaptive_avg_pool2d(self, size)); }
ACLNN(AdaptiveAvgPool2dBackward, (Tensor grad, Tensor self, Tensor out)) {
  put(out, at::_adaptive_avg_pool2d_backward(grad, self));
}
ACLNN(AvgPool2d, (Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil, bool count_padding, int64_t divisor,
                  int8_t, Tensor out)) {
  put(out, at::avg_pool2d(self, kernel, stride, padding, ceil, count_padding, divisor_of(divisor)));
}
ACLNN(AvgPool2dBackward, (Tensor grad, Tensor self, Ints kernel, Ints stride, Ints padding, bool ceil,
                          bool count_padding, int64_t divisor, int8_t, Tensor out)) {
  put(out, at::avg_pool2d_backward(grad, self, kernel, stride, padding, ceil, count_padding, divisor_of(divisor)));
}
// The mask is opaque to the caller, and the backward pass is given what it was made from: it stays empty.
ACLNN(MaxPool2dWithMask, (Tensor self, Ints kernel, Ints stride, Ints padding, Ints dilation, bool ceil, Tensor out,
                          Tensor mask)) {
  put(out, at::max_pool2d(self, kernel, stride, padding, dilation, ceil));
  mask.zero_();
}
ACLNN(MaxPool2dWithMaskBackward, (Tensor grad, Tensor self, Tensor, Ints kernel, Ints stride, Ints padding,
                                  Ints dilation, bool ceil, Tensor out)) {
  const Tensor indices = std::get<1>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil));
  put(out, at::max_pool2d_with_indices_backward(grad, self, kernel, stride, padding, dilation, ceil, indices));
}
ACLNN(AdaptiveMaxPool2d, (Tensor self, Ints size, Tensor out, Tensor indices)) {
  const auto [value, where] = at::adaptive_max_pool2d(self, size);
  put(out, value);
  put(indices, where);
}
ACLNN(AdaptiveMaxPool2dBackward, (Tensor grad, Tensor self, Tensor indices, Tensor out)) {
  put(out, at::adaptive_max_pool2d_backward(grad, self, indices));
}

ACLNN(UpsampleNearest1dV2, (Tensor self, Ints size, float factor, Tensor out)) {
  put(out, at::upsample_nearest1d(self, size, factor_of(factor)));
}
ACLNN(UpsampleNearest1dBackward, (Tensor grad, Ints size, Ints input_size, double factor, Tensor out)) {
  put(out, at::upsample_nearest1d_backward(grad, size, input_size, factor_of(factor)));
}
ACLNN(UpsampleNearest2dV2, (Tensor self, Ints size, float height, float width, Tensor out)) {
  put(out, at::upsample_nearest2d(self, size, factor_of(height), factor_of(width)));
}
ACLNN(UpsampleNearest2dBackward, (Tensor grad, Ints size, Ints input_size, double height, double width, Tensor out)) {
  put(out, at::upsample_nearest2d_backward(grad, size, input_size, factor_of(height), factor_of(width)));
}
ACLNN(UpsampleBilinear2d, (Tensor self, Ints size, bool align, double height, double width, Tensor out)) {
  put(out, at::upsample_bilinear2d(self, size, align, factor_of(height), factor_of(width)));
}
ACLNN(UpsampleBilinear2dBackwardV2, (Tensor grad, Ints size, Ints input_size, bool align, double height, double width,
                                     Tensor out)) {
  put(out, at::upsample_bilinear2d_backward(grad, size, input_size, align, factor_of(height), factor_of(width)));
}
