// Losses and their gradients. `reduction` is torch's number: 0 none, 1 mean, 2 sum.
#include "operator.h"

using namespace npusim;

ACLNN(MseLoss, (Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  put(out, at::mse_loss(self, target, reduction));
}
ACLNN(MseLossBackward, (Tensor grad, Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  put(out, at::mse_loss_backward(grad, self, target, reduction));
}
ACLNN(L1Loss, (Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  put(out, at::l1_loss(self, target, reduction));
}
ACLNN(L1LossBackward, (Tensor grad, Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  const Tensor of_self = grad * at::sign(self - target);
  put(out, reduction == at::Reduction::Mean ? of_self / self.numel() : of_self);
}
ACLNN(SmoothL1Loss, (Tensor self, Tensor target, int64_t reduction, float beta, Tensor out)) {
  put(out, at::smooth_l1_loss(self, target, reduction, beta));
}
ACLNN(SmoothL1LossBackward, (Tensor grad, Tensor self, Tensor target, int64_t reduction, float beta, Tensor out)) {
  put(out, at::smooth_l1_loss_backward(grad, self, target, reduction, beta));
}
ACLNN(SoftMarginLoss, (Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  put(out, at::soft_margin_loss(self, target, reduction));
}
ACLNN(SoftMarginLossBackward, (Tensor grad, Tensor self, Tensor target, int64_t reduction, Tensor out)) {
  put(out, at::soft_margin_loss_backward(grad, self, target, reduction));
}
ACLNN(KlDiv, (Tensor self, Tensor target, int64_t reduction, bool log_target, Tensor out)) {
  put(out, at::kl_div(self, target, reduction, log_target));
}
ACLNN(KlDivBackward, (Tensor grad, Tensor self, Tensor target, int64_t reduction, bool log_target, Tensor out)) {
  const Tensor of_self = -grad * (log_target ? at::exp(target) : target);
  put(out, (reduction == at::Reduction::Mean ? of_self / self.numel() : of_self).expand_as(out));
}

ACLNN(BinaryCrossEntropy, (Tensor self, Tensor target, OptTensor weight, int64_t reduction, Tensor out)) {
  put(out, at::binary_cross_entropy(self, target, weight, reduction));
}
ACLNN(BinaryCrossEntropyBackward, (Tensor grad, Tensor self, Tensor target, OptTensor weight, int64_t reduction,
                                   Tensor out)) {
  put(out, at::binary_cross_entropy_backward(grad, self, target, weight, reduction));
}
ACLNN(BinaryCrossEntropyWithLogits, (Tensor self, Tensor target, OptTensor weight, OptTensor positive,
                                     int64_t reduction, Tensor out)) {
  put(out, at::binary_cross_entropy_with_logits(self, target, weight, positive, reduction));
}
ACLNN(BinaryCrossEntropyWithLogitsBackward, (Tensor grad, Tensor self, Tensor target, OptTensor weight,
                                             OptTensor positive, int64_t reduction, Tensor out)) {
  const Tensor p = at::sigmoid(self);
  const Tensor scaled = positive ? *positive * target : target;
  Tensor of_self = grad * ((scaled + 1 - target) * p - scaled);
  if (weight) of_self = of_self * *weight;
  put(out, reduction == at::Reduction::Mean ? of_self / self.numel() : of_self);
}

#define NLL_LOSS(NAME, FUNCTION)                                                                                  \
  ACLNN(NAME, (Tensor self, Tensor target, Tensor weight, int64_t reduction, int64_t ignored, Tensor out,         \
               Tensor total_weight)) {                                                                            \
    const auto [value, total] = at::FUNCTION##_forward(self, target.to(at::kLong), weight, reduction, ignored);   \
    put(out, value);                                                                                              \
    put(total_weight, total);                                                                                     \
  }                                                                                                               \
  ACLNN(NAME##Backward, (Tensor grad, Tensor self, Tensor target, Tensor weight, int64_t reduction,               \
                         int64_t ignored, Tensor total_weight, Tensor out)) {                                     \
    put(out, at::FUNCTION##_backward(grad, self, target.to(at::kLong), weight, reduction, ignored, total_weight)); \
  }
NLL_LOSS(NLLLoss, nll_loss)
NLL_LOSS(NLLLoss2d, nll_loss2d)
