// Products of matrices and vectors. The last argument of each says which precision the cube unit may use; torch's
// CPU library always computes in full.
#include "operator.h"

using namespace npusim;

namespace {

void product(const Tensor& self, const Tensor& other, const Tensor& out) {
  const auto type = at::result_type(self, other);
  put(out, at::matmul(self.to(type), other.to(type)));
}

}  // namespace

ACLNN(Matmul, (Tensor self, Tensor other, Tensor out, int8_t)) { product(self, other, out); }
ACLNN(MatmulWeightNz, (Tensor self, Tensor other, Tensor out, int8_t)) { product(self, other, out); }
ACLNN(Mm, (Tensor self, Tensor other, Tensor out, int8_t)) { product(self, other, out); }
ACLNN(BatchMatMul, (Tensor self, Tensor other, Tensor out, int8_t)) { product(self, other, out); }
ACLNN(BatchMatMulWeightNz, (Tensor self, Tensor other, Tensor out, int8_t)) { product(self, other, out); }
ACLNN(Mv, (Tensor self, Tensor vector, Tensor out, int8_t)) { put(out, at::mv(self, vector)); }
ACLNN(Dot, (Tensor self, Tensor other, Tensor out)) { put(out, at::dot(self, other)); }

ACLNN(Addmm, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Tensor out, int8_t)) {
  put(out, at::addmm(self, a, b, beta, alpha));
}
ACLNN(AddmmWeightNz, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Tensor out, int8_t)) {
  put(out, at::addmm(self, a, b, beta, alpha));
}
ACLNN(InplaceAddmm, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, int8_t)) {
  self.addmm_(a, b, beta, alpha);
}
ACLNN(Baddbmm, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Tensor out, int8_t)) {
  put(out, at::baddbmm(self, a, b, beta, alpha));
}
ACLNN(Addbmm, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Tensor out, int8_t)) {
  put(out, at::addbmm(self, a, b, beta, alpha));
}
ACLNN(Addmv, (Tensor self, Tensor matrix, Tensor vector, Scalar alpha, Scalar beta, Tensor out, int8_t)) {
  put(out, at::addmv(self, matrix, vector, beta, alpha));
}
ACLNN(Addr, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha, Tensor out)) {
  put(out, at::addr(self, a, b, beta, alpha));
}
ACLNN(InplaceAddr, (Tensor self, Tensor a, Tensor b, Scalar beta, Scalar alpha)) { self.addr_(a, b, beta, alpha); }
