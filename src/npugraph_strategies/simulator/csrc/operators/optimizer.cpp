// Whole steps of an optimizer, and the scale of mixed precision.
#include "operator.h"

using namespace npusim;

// `step` counts from zero. `greatest` holds the greatest second moment so far, with amsgrad.
ACLNN(ApplyAdamWV2, (Tensor self, Tensor first, Tensor second, OptTensor greatest, Tensor grad, Tensor step, float lr,
                     float beta1, float beta2, float decay, float eps, bool amsgrad, bool maximize)) {
  const double number = step.item<double>() + 1;
  const Tensor slope = maximize ? -grad : grad;
  self.mul_(1 - static_cast<double>(lr) * decay);
  first.lerp_(slope, 1 - static_cast<double>(beta1));
  second.mul_(beta2).addcmul_(slope, slope, 1 - static_cast<double>(beta2));
  if (amsgrad) put(*greatest, at::maximum(*greatest, second));
  const Tensor root = (amsgrad ? *greatest : second) / (1 - std::pow(beta2, number));
  self.addcdiv_(first, root.sqrt() + eps, -lr / (1 - std::pow(beta1, number)));
}

ACLNN(FusedSgd, (Tensors self, Tensors grads, Tensors momenta, OptTensor grad_scale, float decay, float momentum,
                 float lr, float dampening, bool nesterov, bool maximize, bool first)) {
  for (size_t i = 0; i < self.size(); ++i) {
    Tensor slope = maximize ? -grads.at(i) : grads.at(i);
    if (grad_scale) slope = slope / *grad_scale;
    slope = slope + decay * self[i];
    const Tensor& average = momenta.at(i);
    put(average, first ? slope : momentum * average + (1 - dampening) * slope);
    self[i].sub_(nesterov ? slope + momentum * average : average, lr);
  }
}

ACLNN(AmpUpdateScale, (Tensor scale, Tensor growth_tracker, Tensor found, double growth, double backoff,
                       int64_t interval, Tensor new_scale, Tensor new_tracker)) {
  put(new_scale, scale);
  put(new_tracker, growth_tracker);
  at::_amp_update_scale_(new_scale, new_tracker, found, growth, backoff, interval);
}
