// Elementwise functions of one tensor.
#include "operator.h"

using namespace npusim;

#define UNARY(NAME, FUNCTION) \
  ACLNN(NAME, (Tensor self, Tensor out)) { put(out, FUNCTION(self)); }
#define UNARY_INPLACE(NAME, FUNCTION) \
  ACLNN(Inplace##NAME, (Tensor self)) { put(self, FUNCTION(self)); }
#define UNARY_BOTH(NAME, FUNCTION) \
  UNARY(NAME, FUNCTION)            \
  UNARY_INPLACE(NAME, FUNCTION)

UNARY(Abs, at::abs)
UNARY(Neg, at::neg)
UNARY(Sign, at::sign)
UNARY(AngleV2, at::angle)
UNARY(BitwiseNot, at::bitwise_not)
UNARY_BOTH(LogicalNot, at::logical_not)

UNARY_BOTH(Sqrt, at::sqrt)
UNARY_BOTH(Rsqrt, at::rsqrt)
UNARY_BOTH(Reciprocal, at::reciprocal)
UNARY_BOTH(Exp, at::exp)
UNARY_BOTH(Exp2, at::exp2)
UNARY_BOTH(Expm1, at::expm1)
UNARY_BOTH(Log, at::log)
UNARY_BOTH(Log2, at::log2)
UNARY_BOTH(Log10, at::log10)
UNARY_BOTH(Log1p, at::log1p)
UNARY_BOTH(Erf, at::erf)
UNARY_BOTH(Erfc, at::erfc)
UNARY_BOTH(Erfinv, at::erfinv)

UNARY_BOTH(Sin, at::sin)
UNARY_BOTH(Cos, at::cos)
UNARY_BOTH(Tan, at::tan)
UNARY_BOTH(Asin, at::asin)
UNARY_BOTH(Acos, at::acos)
UNARY_BOTH(Atan, at::atan)
UNARY_BOTH(Sinh, at::sinh)
UNARY_BOTH(Cosh, at::cosh)
UNARY_BOTH(Asinh, at::asinh)
UNARY_BOTH(Acosh, at::acosh)
UNARY_BOTH(Atanh, at::atanh)
UNARY_BOTH(Sinc, at::sinc)

UNARY_BOTH(Floor, at::floor)
UNARY_BOTH(Ceil, at::ceil)
UNARY_BOTH(Frac, at::frac)
UNARY(Round, at::round)
UNARY(Trunc, at::trunc)
ACLNN(RoundDecimals, (Tensor self, int64_t decimals, Tensor out)) { put(out, at::round(self, decimals)); }
ACLNN(InplaceRoundDecimals, (Tensor self, int64_t decimals)) { put(self, at::round(self, decimals)); }

ACLNN(NanToNum, (Tensor self, float nan, float posinf, float neginf, Tensor out)) {
  put(out, at::nan_to_num(self, nan, posinf, neginf));
}
ACLNN(InplaceNanToNum, (Tensor self, float nan, float posinf, float neginf)) {
  put(self, at::nan_to_num(self, nan, posinf, neginf));
}
ACLNN(Logit, (Tensor self, double eps, Tensor out)) {
  put(out, at::logit(self, eps < 0 ? std::nullopt : std::optional<double>(eps)));
}
