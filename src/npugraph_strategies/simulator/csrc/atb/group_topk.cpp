// Routing to groups of experts: the scores of all but the best groups become zero.
#include "operation.h"

namespace npusim {
namespace {

using Param = atb::infer::GroupTopkParam;

constexpr uint16_t kLargest = 0, kSumOfLargest = 1;  // what the score of a group is

Plan group_topk(const Param& param, const Call& call) {
  NPUSIM_REQUIRE(call.inputs.size() == 2 && call.outputs.size() == 1, "2 inputs and one output are expected; given ",
                 call.inputs.size(), " and ", call.outputs.size());
  const aclTensor scores = call.inputs[0].device("scores"), out = call.outputs[0].device("the output");
  const int64_t groups = param.groupNum, kept = param.k;
  NPUSIM_REQUIRE(scores.sizes.size() == 2 && groups > 0 && scores.sizes[1] % groups == 0,
                 "scores must be [tokens, experts] with a multiple of ", groups, " experts; given ",
                 at::IntArrayRef(scores.sizes));
  NPUSIM_REQUIRE(kept > 0 && kept <= groups, "k must lie in 1 to ", groups, "; given ", kept);
  NPUSIM_REQUIRE(param.groupMultiFlag <= kSumOfLargest, "groupMultiFlag ", param.groupMultiFlag, " is not simulated");
  const int64_t summed = param.groupMultiFlag == kLargest ? 1 : param.n;
  NPUSIM_REQUIRE(summed > 0 && summed <= scores.sizes[1] / groups, "n must lie in 1 to ", scores.sizes[1] / groups,
                 "; given ", summed);
  NPUSIM_REQUIRE(out.sizes == scores.sizes, "the output must have the shape of the scores");
  Plan plan;
  plan.touched = {scores, out};
  plan.run = [=] {
    const Tensor grouped = view_of(scores).unflatten(1, {groups, -1});
    const Tensor worth = std::get<0>(grouped.to(at::kFloat).topk(summed, -1)).sum(-1);
    const Tensor best = std::get<1>(worth.topk(kept, -1));
    const Tensor seen = at::zeros_like(worth, at::kBool).scatter_(1, best, true).unsqueeze(2);
    put(view_of(out), grouped.masked_fill(seen.logical_not(), 0).flatten(1));
  };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::GroupTopkParam& param, Operation** operation) {
  return npusim::create("GroupTopk", param, npusim::group_topk, operation);
}

}  // namespace atb
