// Comparisons, tests of floating point classes, and selection by a condition.
#include "operator.h"

using namespace npusim;

// Each comparison exists with a tensor and with a number, and writing to `out` or to `self`.
#define COMPARISON(NAME, FUNCTION)                                                                       \
  ACLNN(NAME##Tensor, (Tensor self, Tensor other, Tensor out)) { put(out, FUNCTION(self, other)); }      \
  ACLNN(NAME##Scalar, (Tensor self, Scalar other, Tensor out)) { put(out, FUNCTION(self, other)); }      \
  ACLNN(Inplace##NAME##Tensor, (Tensor self, Tensor other)) { put(self, FUNCTION(self, other)); }        \
  ACLNN(Inplace##NAME##Scalar, (Tensor self, Scalar other)) { put(self, FUNCTION(self, other)); }

COMPARISON(Eq, at::eq)
COMPARISON(Ne, at::ne)
COMPARISON(Lt, at::lt)
COMPARISON(Le, at::le)
COMPARISON(Gt, at::gt)
COMPARISON(Ge, at::ge)
ACLNN(LessScalar, (Tensor self, Scalar other, Tensor out)) { put(out, at::lt(self, other)); }

// The result is one element: whether shapes and all values agree.
ACLNN(Equal, (Tensor self, Tensor other, Tensor out)) { out.fill_(at::equal(self, other)); }
ACLNN(IsClose, (Tensor self, Tensor other, double rtol, double atol, bool equal_nan, Tensor out)) {
  put(out, at::isclose(self, other, rtol, atol, equal_nan));
}
ACLNN(IsInScalarTensor, (Scalar element, Tensor tests, bool unique, bool invert, Tensor out)) {
  put(out, at::isin(element, tests, unique, invert));
}
ACLNN(IsInTensorScalar, (Tensor elements, Scalar test, bool unique, bool invert, Tensor out)) {
  put(out, at::isin(elements, test, unique, invert));
}

ACLNN(IsFinite, (Tensor self, Tensor out)) { put(out, at::isfinite(self)); }
ACLNN(IsPosInf, (Tensor self, Tensor out)) { put(out, at::isposinf(self)); }
ACLNN(IsNegInf, (Tensor self, Tensor out)) { put(out, at::isneginf(self)); }
ACLNN(Signbit, (Tensor self, Tensor out)) { put(out, at::signbit(self)); }

ACLNN(SWhere, (Tensor condition, Tensor self, Tensor other, Tensor out)) {
  put(out, at::where(condition.to(at::kBool), self, other));
}
