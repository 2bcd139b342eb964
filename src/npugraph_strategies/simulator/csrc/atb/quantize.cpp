// Numbers made int8 by a scale and an offset, with a norm before or not.
#include "operation.h"

namespace npusim {
namespace {

using Elewise = atb::infer::ElewiseParam;
using RmsNorm = atb::infer::RmsNormParam;

constexpr int32_t kQuantPerChannel = 17;
constexpr int32_t kNorm = 1, kQuantInt8 = 2;

Tensor quantized(const Tensor& values, const Tensor& scale, const Tensor& offset) {
  return (at::round(values / scale.to(at::kFloat)) + offset.to(at::kFloat)).clamp(-128, 127).to(at::kChar);
}

// The inputs as descriptors, after a check of how many there are and that the last is an int8 output of the first.
std::vector<aclTensor> operands(const Call& call, std::initializer_list<const char*> names) {
  NPUSIM_REQUIRE(call.inputs.size() == names.size() && call.outputs.size() == 1, names.size(),
                 " inputs and one output are expected; given ", call.inputs.size(), " and ", call.outputs.size());
  std::vector<aclTensor> found;
  for (const char* name : names) found.push_back(call.inputs[found.size()].device(name));
  found.push_back(call.outputs[0].device("the output"));
  NPUSIM_REQUIRE(found.back().sizes == found.front().sizes && found.back().type == ACL_INT8,
                 "the output must be int8 of shape ", at::IntArrayRef(found.front().sizes), "; given ",
                 at::IntArrayRef(found.back().sizes));
  return found;
}

Plan elewise(const Elewise& param, const Call& call) {
  NPUSIM_REQUIRE(param.elewiseType == kQuantPerChannel, "elewiseType ", param.elewiseType, " is not simulated");
  Plan plan;
  plan.touched = operands(call, {"input", "scale", "offset"});
  plan.run = [all = plan.touched] {
    put(view_of(all[3]), quantized(view_of(all[0]).to(at::kFloat), view_of(all[1]), view_of(all[2])));
  };
  return plan;
}

Plan rms_norm(const RmsNorm& param, const Call& call) {
  NPUSIM_REQUIRE(param.layerType == kNorm && param.normParam.quantType == kQuantInt8, "layerType ", param.layerType,
                 " with quantType ", param.normParam.quantType, " is not simulated");
  Plan plan;
  plan.touched = operands(call, {"x", "gamma", "beta", "scale", "offset"});
  plan.run = [all = plan.touched, epsilon = static_cast<double>(param.normParam.epsilon)] {
    const Tensor x = view_of(all[0]).to(at::kFloat);
    const Tensor inverse = at::rsqrt(x.square().mean({-1}, true) + epsilon);
    const Tensor normed = x * inverse * view_of(all[1]).to(at::kFloat) + view_of(all[2]).to(at::kFloat);
    put(view_of(all[5]), quantized(normed, view_of(all[3]), view_of(all[4])));
  };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::ElewiseParam& param, Operation** operation) {
  return npusim::create("Elewise", param, npusim::elewise, operation);
}

template <>
Status CreateOperation(const infer::RmsNormParam& param, Operation** operation) {
  return npusim::create("RmsNorm", param, npusim::rms_norm, operation);
}

}  // namespace atb
