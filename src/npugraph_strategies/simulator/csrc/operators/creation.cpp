// Filling tensors with numbers and patterns.
#include "operator.h"

using namespace npusim;

ACLNN(InplaceZero, (Tensor self)) { self.zero_(); }
ACLNN(InplaceOne, (Tensor self)) { self.fill_(1); }
ACLNN(InplaceFillScalar, (Tensor self, Scalar value)) { self.fill_(value); }
ACLNN(InplaceFillTensor, (Tensor self, Tensor value)) { self.copy_(value); }
ACLNN(InplaceFillDiagonal, (Tensor self, Scalar value, bool wrap)) { self.fill_diagonal_(value, wrap); }

ACLNN(Arange, (Scalar start, Scalar end, Scalar step, Tensor out)) {
  put(out, at::arange(start, end, step, out.options()));
}
// The end belongs to it.
ACLNN(Range, (Scalar start, Scalar end, Scalar step, Tensor out)) {
  put(out, at::range(start, end, step, out.options()));
}
ACLNN(Linspace, (Scalar start, Scalar end, int64_t steps, Tensor out)) {
  put(out, at::linspace(start, end, steps, out.options()));
}
ACLNN(LogSpace, (Scalar start, Scalar end, int64_t steps, double base, Tensor out)) {
  put(out, at::logspace(start, end, steps, base, out.options()));
}
ACLNN(Eye, (int64_t n, int64_t m, Tensor out)) { put(out, at::eye(n, m, out.options())); }

ACLNN(Tril, (Tensor self, int64_t diagonal, Tensor out)) { put(out, at::tril(self, diagonal)); }
ACLNN(Triu, (Tensor self, int64_t diagonal, Tensor out)) { put(out, at::triu(self, diagonal)); }
ACLNN(InplaceTril, (Tensor self, int64_t diagonal)) { put(self, at::tril(self, diagonal)); }
ACLNN(InplaceTriu, (Tensor self, int64_t diagonal)) { put(self, at::triu(self, diagonal)); }

ACLNN(Complex, (Tensor real, Tensor imaginary, Tensor out)) { put(out, at::complex(real, imaginary)); }
ACLNN(Polar, (Tensor absolute, Tensor angle, Tensor out)) { put(out, at::polar(absolute, angle)); }
