// Elementwise functions of lists of tensors, as optimizers use them.
#include "operator.h"

using namespace npusim;

namespace {

// Write `value(i)` to each output; the lists are as long as each other.
template <typename Value>
void put_each(const Tensors& out, const Value& value) {
  for (size_t i = 0; i < out.size(); ++i) put(out[i], value(i));
}

// Numbers of the rounding functions, as they cross the interface.
Tensor round_off(const Tensor& self, int64_t mode) {
  switch (mode) {
    case 1: return at::round(self);
    case 2: return at::floor(self);
    case 3: return at::ceil(self);
    case 5: return at::trunc(self);
    case 7: return at::frac(self);
    default: throw std::invalid_argument("there is no rounding function number " + std::to_string(mode));
  }
}

Tensor at_most(const Tensor& self, Scalar bound) { return at::clamp_max(self, bound); }
Tensor at_most(const Tensor& self, const Tensor& other) { return at::minimum(self, other); }
Tensor at_least(const Tensor& self, Scalar bound) { return at::clamp_min(self, bound); }
Tensor at_least(const Tensor& self, const Tensor& other) { return at::maximum(self, other); }

}  // namespace

#define EACH(NAME, FUNCTION) \
  ACLNN(Foreach##NAME, (Tensors x, Tensors out)) { put_each(out, [&](size_t i) { return FUNCTION(x.at(i)); }); }

// One number for all stands in a tensor, in the second version in a scalar; or there is one for each tensor.
#define EACH_NUMBER(NAME, FUNCTION)                                                                  \
  ACLNN(Foreach##NAME##Scalar, (Tensors x, Tensor y, Tensors out)) {                                 \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.item()); });                            \
  }                                                                                                  \
  ACLNN(Foreach##NAME##ScalarV2, (Tensors x, Scalar y, Tensors out)) {                               \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y); });                                   \
  }                                                                                                  \
  ACLNN(Foreach##NAME##ScalarList, (Tensors x, Scalars y, Tensors out)) {                            \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i)); });                             \
  }

#define EACH_PAIR(NAME, FUNCTION)                                        \
  ACLNN(Foreach##NAME##List, (Tensors x, Tensors y, Tensors out)) {      \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i)); }); \
  }

#define EACH_SCALED_PAIR(NAME, FUNCTION)                                                 \
  ACLNN(Foreach##NAME##List, (Tensors x, Tensors y, Tensor alpha, Tensors out)) {        \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i), alpha.item()); });   \
  }                                                                                      \
  ACLNN(Foreach##NAME##ListV2, (Tensors x, Tensors y, Scalar alpha, Tensors out)) {      \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i), alpha); });          \
  }

// The numbers for each triple stand in one tensor.
#define EACH_TRIPLE(NAME, FUNCTION)                                                                  \
  ACLNN(Foreach##NAME##Scalar, (Tensors x, Tensors y, Tensors z, Tensor value, Tensors out)) {       \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i), z.at(i), value.item()); });      \
  }                                                                                                  \
  ACLNN(Foreach##NAME##ScalarV2, (Tensors x, Tensors y, Tensors z, Scalar value, Tensors out)) {     \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i), z.at(i), value); });             \
  }                                                                                                  \
  ACLNN(Foreach##NAME##ScalarList, (Tensors x, Tensors y, Tensors z, Tensor values, Tensors out)) {  \
    put_each(out, [&](size_t i) { return FUNCTION(x.at(i), y.at(i), z.at(i), values[i].item()); });  \
  }

EACH(Abs, at::abs)
EACH(Neg, at::neg)
EACH(Sign, at::sign)
EACH(Copy, )
EACH(Sqrt, at::sqrt)
EACH(Reciprocal, at::reciprocal)
EACH(Exp, at::exp)
EACH(Expm1, at::expm1)
EACH(Log, at::log)
EACH(Log2, at::log2)
EACH(Log10, at::log10)
EACH(Log1p, at::log1p)
EACH(Sin, at::sin)
EACH(Cos, at::cos)
EACH(Tan, at::tan)
EACH(Asin, at::asin)
EACH(Acos, at::acos)
EACH(Atan, at::atan)
EACH(Sinh, at::sinh)
EACH(Cosh, at::cosh)
EACH(Tanh, at::tanh)
EACH(Erf, at::erf)
EACH(Erfc, at::erfc)
EACH(Sigmoid, at::sigmoid)

EACH_SCALED_PAIR(Add, at::add)
EACH_SCALED_PAIR(Sub, at::sub)
EACH_PAIR(Mul, at::mul)
EACH_PAIR(Div, at::div)
EACH_PAIR(Pow, at::pow)
EACH_PAIR(Maximum, at_least)
EACH_PAIR(Minimum, at_most)
EACH_NUMBER(Add, at::add)
EACH_NUMBER(Sub, at::sub)
EACH_NUMBER(Mul, at::mul)
EACH_NUMBER(Div, at::div)
EACH_NUMBER(Pow, at::pow)
EACH_NUMBER(Maximum, at_least)
EACH_NUMBER(Minimum, at_most)
EACH_TRIPLE(Addcmul, at::addcmul)
EACH_TRIPLE(Addcdiv, at::addcdiv)

ACLNN(ForeachPowScalarAndTensor, (Scalar base, Tensors exponent, Tensors out)) {
  put_each(out, [&](size_t i) { return at::pow(base, exponent.at(i)); });
}
ACLNN(ForeachLerpScalar, (Tensors x, Tensors y, Scalar weight, Tensors out)) {
  put_each(out, [&](size_t i) { return at::lerp(x.at(i), y.at(i), weight); });
}
ACLNN(ForeachLerpList, (Tensors x, Tensors y, Tensors weight, Tensors out)) {
  put_each(out, [&](size_t i) { return at::lerp(x.at(i), y.at(i), weight.at(i)); });
}
ACLNN(ForeachRoundOffNumber, (Tensors x, Tensor mode, Tensors out)) {
  put_each(out, [&](size_t i) { return round_off(x.at(i), mode.item().toLong()); });
}
ACLNN(ForeachRoundOffNumberV2, (Tensors x, Scalar mode, Tensors out)) {
  put_each(out, [&](size_t i) { return round_off(x.at(i), mode.toLong()); });
}
ACLNN(ForeachNorm, (Tensors x, Scalar order, Tensors out)) {
  put_each(out, [&](size_t i) { return at::linalg_vector_norm(x.at(i), order); });
}
ACLNN(ForeachZeroInplace, (Tensors x)) {
  for (const Tensor& one : x) one.zero_();
}

// Divide gradients by the scale of the loss, and say whether one was not finite before.
ACLNN(ForeachNonFiniteCheckAndUnscale, (Tensors gradients, Tensor found, Tensor inverse_scale)) {
  for (const Tensor& one : gradients) {
    if (!at::isfinite(one).all().item<bool>()) found.fill_(1);
    one.mul_(inverse_scale);
  }
}
