// Softmax and its logarithm.
#include "operator.h"

using namespace npusim;

ACLNN(Softmax, (Tensor self, int64_t dim, Tensor out)) { put(out, at::softmax(self, dim, out.scalar_type())); }
ACLNN(LogSoftmax, (Tensor self, int64_t dim, Tensor out)) { put(out, at::log_softmax(self, dim, out.scalar_type())); }

ACLNN(SoftmaxBackward, (Tensor grad, Tensor output, int64_t dim, Tensor out)) {
  put(out, at::_softmax_backward_data(grad, output, dim, output.scalar_type()));
}
ACLNN(LogSoftmaxBackward, (Tensor grad, Tensor output, int64_t dim, Tensor out)) {
  put(out, at::_log_softmax_backward_data(grad, output, dim, output.scalar_type()));
}
