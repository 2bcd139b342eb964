// A product of matrices that is added to what the output holds.
#include "operation.h"

namespace npusim {
namespace {

using Param = atb::infer::LinearParam;

Plan linear(const Param& param, const Call& call) {
  NPUSIM_REQUIRE(param.enAccum && !param.hasBias, "a linear layer other than the accumulating one without bias is not "
                 "simulated");
  NPUSIM_REQUIRE(call.inputs.size() == 3 && call.outputs.size() == 1, "3 inputs and one output are expected; given ",
                 call.inputs.size(), " and ", call.outputs.size());
  const aclTensor x = call.inputs[0].device("x"), weight = call.inputs[1].device("weight"),
                  sum = call.inputs[2].device("accum"), out = call.outputs[0].device("the output");
  NPUSIM_REQUIRE(x.sizes.size() == 2 && weight.sizes.size() == 2 && sum.sizes.size() == 2,
                 "x, weight and accum are matrices");
  const bool first = param.transposeA, second = param.transposeB;
  NPUSIM_REQUIRE(x.sizes[first ? 0 : 1] == weight.sizes[second ? 1 : 0] && out.sizes == sum.sizes &&
                     sum.sizes == (Ints{x.sizes[first ? 1 : 0], weight.sizes[second ? 0 : 1]}),
                 "matrices do not fit: ", at::IntArrayRef(x.sizes), ", ", at::IntArrayRef(weight.sizes), " and ",
                 at::IntArrayRef(sum.sizes));
  Plan plan;
  plan.touched = {x, weight, sum, out};
  plan.run = [=] {
    const auto matrix = [](const aclTensor& one, bool transposed) {
      const Tensor wide = view_of(one).to(at::kFloat);
      return transposed ? wide.t() : wide;
    };
    put(view_of(out), at::addmm(matrix(sum, false), matrix(x, first), matrix(weight, second)));
  };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::LinearParam& param, Operation** operation) {
  return npusim::create("Linear", param, npusim::linear, operation);
}

}  // namespace atb
