// Outputs whose shape depends on the data. torch_npu allocates the most that can be needed, launches, waits for the
// stream, and asks the descriptor for the shape that came out (aclGetViewShape): so the descriptor outlives the launch.
#pragma once

#include "operator.h"

namespace npusim {

struct DynamicTensor {
  aclTensor* descriptor;
  aclTensor kept;

  void put(const at::Tensor& value) const {
    TORCH_CHECK(value.numel() <= view_of(kept).numel(), "the result has ", value.numel(),
                " elements, and the output has room for ", view_of(kept).numel());
    aclTensor front = kept;
    front.sizes = value.sizes().vec();
    front.strides = value.contiguous().strides().vec();
    view_of(front).copy_(value);
    descriptor->sizes = front.sizes;
    descriptor->strides = front.strides;
  }
};

template <>
struct Argument<DynamicTensor> {
  using Abi = aclTensor*;
  using Kept = DynamicTensor;
  static Kept keep(Abi tensor, std::vector<Extent>& extents) {
    if (!tensor) throw std::invalid_argument("a tensor that must be given is null");
    extents.push_back(extent_of(*tensor));
    return {tensor, *tensor};
  }
  static DynamicTensor give(const Kept& kept) { return kept; }
};

}  // namespace npusim
