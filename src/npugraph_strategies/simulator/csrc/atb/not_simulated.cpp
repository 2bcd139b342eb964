// Operations that torch_npu links and the simulator does not compute: each says so when it is created.
#include "operation.h"

namespace atb {
namespace {

Status refuse(const char* name) {
  return npusim::fail(npusim::kInvalidArgument, std::string("ATB ") + name + ": the simulator has no such operation");
}

}  // namespace

template <>
Status CreateOperation(const infer::LinearParam&, Operation**) { return refuse("Linear"); }

template <>
Status CreateOperation(const infer::ElewiseParam&, Operation**) { return refuse("Elewise"); }

template <>
Status CreateOperation(const infer::RmsNormParam&, Operation**) { return refuse("RmsNorm"); }

template <>
Status CreateOperation(const infer::GroupTopkParam&, Operation**) { return refuse("GroupTopk"); }

template <>
Status CreateOperation(const infer::SelfAttentionParam&, Operation**) { return refuse("SelfAttention"); }

template <>
Status CreateOperation(const infer::RopeParam&, Operation**) { return refuse("Rope"); }

}  // namespace atb
