// Elementwise arithmetic.
#include "operator.h"

using namespace npusim;

ACLNN(Add, (Tensor self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::add(self, other, alpha)); }
