// Elementwise arithmetic of two or more operands, logical and bitwise operators, bounds.
#include "operator.h"

using namespace npusim;

namespace {

// Numbers of the rounding modes of division, as they cross the interface.
std::optional<c10::string_view> rounding(int32_t mode) {
  switch (mode) {
    case 0: return std::nullopt;
    case 1: return "trunc";
    case 2: return "floor";
    default: throw std::invalid_argument("division has no rounding mode number " + std::to_string(mode));
  }
}

}  // namespace

// self ⊕ other, of tensors (NAME) and of a tensor and a number (SCALAR_NAME).
#define BINARY(NAME, FUNCTION) \
  ACLNN(NAME, (Tensor self, Tensor other, Tensor out)) { put(out, FUNCTION(self, other)); }
#define BINARY_SCALAR(NAME, FUNCTION) \
  ACLNN(NAME, (Tensor self, Scalar other, Tensor out)) { put(out, FUNCTION(self, other)); }
#define BINARY_INPLACE(NAME, FUNCTION) \
  ACLNN(Inplace##NAME, (Tensor self, Tensor other)) { put(self, FUNCTION(self, other)); }
#define BINARY_SCALAR_INPLACE(NAME, FUNCTION) \
  ACLNN(Inplace##NAME, (Tensor self, Scalar other)) { put(self, FUNCTION(self, other)); }
#define BINARY_ALL(NAME, SCALAR_NAME, FUNCTION) \
  BINARY(NAME, FUNCTION)                        \
  BINARY_SCALAR(SCALAR_NAME, FUNCTION)          \
  BINARY_INPLACE(NAME, FUNCTION)                \
  BINARY_SCALAR_INPLACE(SCALAR_NAME, FUNCTION)

// Sums and differences scale the second operand.
ACLNN(Add, (Tensor self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::add(self, other, alpha)); }
ACLNN(Adds, (Tensor self, Scalar other, Scalar alpha, Tensor out)) { put(out, at::add(self, other, alpha)); }
ACLNN(AddV3, (Scalar self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::add(at::mul(other, alpha), self)); }
ACLNN(InplaceAdd, (Tensor self, Tensor other, Scalar alpha)) { put(self, at::add(self, other, alpha)); }
ACLNN(InplaceAdds, (Tensor self, Scalar other, Scalar alpha)) { put(self, at::add(self, other, alpha)); }
ACLNN(Sub, (Tensor self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::sub(self, other, alpha)); }
ACLNN(Subs, (Tensor self, Scalar other, Scalar alpha, Tensor out)) { put(out, at::sub(self, other, alpha)); }
ACLNN(InplaceSub, (Tensor self, Tensor other, Scalar alpha)) { put(self, at::sub(self, other, alpha)); }
ACLNN(InplaceSubs, (Tensor self, Scalar other, Scalar alpha)) { put(self, at::sub(self, other, alpha)); }
ACLNN(Rsub, (Tensor self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::rsub(self, other, alpha)); }
ACLNN(Rsubs, (Tensor self, Scalar other, Scalar alpha, Tensor out)) { put(out, at::rsub(self, other, alpha)); }
ACLNN(AddRelu, (Tensor self, Tensor other, Scalar alpha, Tensor out)) {
  put(out, at::relu(at::add(self, other, alpha)));
}
ACLNN(InplaceAddRelu, (Tensor self, Tensor other, Scalar alpha)) { put(self, at::relu(at::add(self, other, alpha))); }

BINARY_ALL(Mul, Muls, at::mul)
BINARY_ALL(Div, Divs, at::div)
BINARY_ALL(FloorDivide, FloorDivides, at::floor_divide)
ACLNN(DivMod, (Tensor self, Tensor other, int32_t mode, Tensor out)) { put(out, at::div(self, other, rounding(mode))); }
ACLNN(DivMods, (Tensor self, Scalar other, int32_t mode, Tensor out)) {
  put(out, at::div(self, other, rounding(mode)));
}
ACLNN(InplaceDivMod, (Tensor self, Tensor other, int32_t mode)) { put(self, at::div(self, other, rounding(mode))); }
ACLNN(InplaceDivMods, (Tensor self, Scalar other, int32_t mode)) { put(self, at::div(self, other, rounding(mode))); }

BINARY_ALL(FmodTensor, FmodScalar, at::fmod)
BINARY_ALL(RemainderTensorTensor, RemainderTensorScalar, at::remainder)
ACLNN(RemainderScalarTensor, (Scalar self, Tensor other, Tensor out)) { put(out, at::remainder(self, other)); }
BINARY_ALL(PowTensorTensor, PowTensorScalar, at::pow)
ACLNN(PowScalarTensor, (Scalar self, Tensor exponent, Tensor out)) { put(out, at::pow(self, exponent)); }

BINARY(Atan2, at::atan2)
BINARY_INPLACE(Atan2, at::atan2)
BINARY(Gcd, at::gcd)
BINARY(LogAddExp, at::logaddexp)
BINARY(LogAddExp2, at::logaddexp2)
BINARY(XLogYTensor, at::xlogy)
BINARY_SCALAR(XLogYScalarOther, at::xlogy)
BINARY_SCALAR_INPLACE(XLogYScalarOther, at::xlogy)
ACLNN(XLogYScalarSelf, (Scalar self, Tensor other, Tensor out)) { put(out, at::xlogy(self, other)); }

ACLNN(Addcmul, (Tensor self, Tensor one, Tensor two, Scalar value, Tensor out)) {
  put(out, at::addcmul(self, one, two, value));
}
ACLNN(InplaceAddcmul, (Tensor self, Tensor one, Tensor two, Scalar value)) {
  put(self, at::addcmul(self, one, two, value));
}
ACLNN(Addcdiv, (Tensor self, Tensor one, Tensor two, Scalar value, Tensor out)) {
  put(out, at::addcdiv(self, one, two, value));
}
ACLNN(InplaceAddcdiv, (Tensor self, Tensor one, Tensor two, Scalar value)) {
  put(self, at::addcdiv(self, one, two, value));
}
ACLNN(Lerp, (Tensor self, Tensor end, Tensor weight, Tensor out)) { put(out, at::lerp(self, end, weight)); }
ACLNN(Lerps, (Tensor self, Tensor end, Scalar weight, Tensor out)) { put(out, at::lerp(self, end, weight)); }
ACLNN(InplaceLerp, (Tensor self, Tensor end, Tensor weight)) { put(self, at::lerp(self, end, weight)); }
ACLNN(InplaceLerps, (Tensor self, Tensor end, Scalar weight)) { put(self, at::lerp(self, end, weight)); }

// Logical and bitwise.
BINARY(LogicalAnd, at::logical_and)
BINARY_INPLACE(LogicalAnd, at::logical_and)
BINARY(LogicalOr, at::logical_or)
BINARY_INPLACE(LogicalOr, at::logical_or)
BINARY(LogicalXor, at::logical_xor)
BINARY_ALL(BitwiseAndTensor, BitwiseAndScalar, at::bitwise_and)
BINARY(BitwiseOrTensor, at::bitwise_or)
BINARY_SCALAR(BitwiseOrScalar, at::bitwise_or)
BINARY_ALL(BitwiseXorTensor, BitwiseXorScalar, at::bitwise_xor)
BINARY(LeftShift, at::bitwise_left_shift)
BINARY_SCALAR(LeftShifts, at::bitwise_left_shift)
BINARY(RightShift, at::bitwise_right_shift)

// Bounds.
BINARY(Maximum, at::maximum)
BINARY(Minimum, at::minimum)
ACLNN(Clamp, (Tensor self, OptScalar min, OptScalar max, Tensor out)) { put(out, at::clamp(self, min, max)); }
ACLNN(ClampTensor, (Tensor self, OptTensor min, OptTensor max, Tensor out)) { put(out, at::clamp(self, min, max)); }
BINARY_SCALAR(ClampMin, at::clamp_min)
BINARY_SCALAR(ClampMax, at::clamp_max)
BINARY_SCALAR_INPLACE(ClampMax, at::clamp_max)
BINARY(ClampMinTensor, at::clamp_min)
BINARY_INPLACE(ClampMinTensor, at::clamp_min)
BINARY(ClampMaxTensor, at::clamp_max)
BINARY_INPLACE(ClampMaxTensor, at::clamp_max)
