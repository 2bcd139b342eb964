// Rotary position embedding of queries and keys that lie one head after the other in each row.
#include "operation.h"

namespace npusim {
namespace {

using Param = atb::infer::RopeParam;

constexpr int32_t kHalves = 2;

// `rows` is [tokens, heads * D], cosines and sines are [tokens, D]. Pairs are the halves of a head, or its neighbours.
Tensor rotated(const Tensor& rows, const Tensor& cosines, const Tensor& sines, bool halves) {
  const int64_t dim = cosines.size(1);
  const Tensor heads = rows.to(at::kFloat).reshape({rows.size(0), -1, dim});
  const Tensor pairs = halves ? heads.unflatten(2, {2, dim / 2}) : heads.unflatten(2, {dim / 2, 2}).transpose(2, 3);
  const Tensor turned = at::stack({pairs.select(2, 1).neg(), pairs.select(2, 0)}, 2);
  const Tensor crossed = (halves ? turned : turned.transpose(2, 3)).flatten(2);
  const auto wide = [](const Tensor& factors) { return factors.to(at::kFloat).unsqueeze(1); };
  return (heads * wide(cosines) + crossed * wide(sines)).reshape_as(rows);
}

Plan rope(const Param& param, const Call& call) {
  NPUSIM_REQUIRE(call.inputs.size() == 5 && call.outputs.size() == 2, "5 inputs and 2 outputs are expected; given ",
                 call.inputs.size(), " and ", call.outputs.size());
  const aclTensor query = call.inputs[0].device("query"), key = call.inputs[1].device("key"),
                  cosines = call.inputs[2].device("cos"), sines = call.inputs[3].device("sin"),
                  new_query = call.outputs[0].device("ropeQ"), new_key = call.outputs[1].device("ropeK");
  NPUSIM_REQUIRE(cosines.sizes.size() == 2 && sines.sizes == cosines.sizes && cosines.sizes[1] > 0 &&
                     cosines.sizes[1] % 2 == 0,
                 "cos and sin must be [tokens, an even D]; given ", at::IntArrayRef(cosines.sizes));
  const int64_t tokens = cosines.sizes[0], dim = cosines.sizes[1];
  NPUSIM_REQUIRE(param.rotaryCoeff == kHalves || param.rotaryCoeff == dim, "rotaryCoeff ", param.rotaryCoeff,
                 " is not simulated: it must be 2 or ", dim);
  for (const aclTensor* rows : {&query, &key})
    NPUSIM_REQUIRE(rows->sizes.size() == 2 && rows->sizes[0] == tokens && rows->sizes[1] % dim == 0,
                   "query and key must be [", tokens, ", heads * ", dim, "]; given ", at::IntArrayRef(rows->sizes));
  NPUSIM_REQUIRE(new_query.sizes == query.sizes && new_key.sizes == key.sizes,
                 "results must have the shapes of query and key");
  Plan plan;
  plan.touched = {query, key, cosines, sines, new_query, new_key};
  const bool halves = param.rotaryCoeff == kHalves;
  plan.run = [=] {
    const Tensor cos = view_of(cosines), sin = view_of(sines);
    const Tensor turned_query = rotated(view_of(query), cos, sin, halves);
    const Tensor turned_key = rotated(view_of(key), cos, sin, halves);
    put(view_of(new_query), turned_query);
    put(view_of(new_key), turned_key);
  };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::RopeParam& param, Operation** operation) {
  return npusim::create("Rope", param, npusim::rope, operation);
}

}  // namespace atb
