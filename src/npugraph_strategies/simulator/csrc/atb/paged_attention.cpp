// Paged attention for decoding, for mixed batches (split fuse), and over a cache whose values are part of its keys.
#include "paged_call.h"

namespace npusim {
namespace {

using Param = atb::infer::PagedAttentionParam;
using Kind = AttentionMask::Kind;

constexpr int32_t kMaskUndefined = 0, kMaskNorm = 1, kMaskAlibi = 2, kMaskSpec = 3, kMaskFree = 4,
                  kMaskNormCompress = 5;
constexpr int32_t kCalcUndefined = 0, kCalcSpec = 1;

void require_covered(const Param& param) {
  const bool plain = !param.batchRunStatusEnable && param.quantType == 0 && !param.hasQuantOffset &&
                     param.compressType == 0 && param.scaleType == 0 && param.inputLayout == 0;
  NPUSIM_REQUIRE(plain, "quantisation, compression, run status, scale types and BNSD are not simulated");
  NPUSIM_REQUIRE(param.calcType == kCalcUndefined || param.calcType == kCalcSpec, "calcType ", param.calcType,
                 " is not simulated");
}

Kind mask_kind(int32_t type) {
  switch (type) {
    case kMaskUndefined: return Kind::kNone;
    case kMaskNorm:
    case kMaskAlibi:
    case kMaskSpec: return Kind::kGiven;
    case kMaskFree:
    case kMaskNormCompress: return Kind::kCausal;  // the mask is a fixed triangle, its content says nothing new
    default: NPUSIM_REQUIRE(false, "maskType ", type, " is not simulated");
  }
}

Plan paged_attention(const Param& param, const Call& call) {
  require_covered(param);
  PagedCall paged;
  paged.heads = param.headNum;
  paged.kv_heads = param.kvHeadNum ? param.kvHeadNum : param.headNum;
  paged.value_size = static_cast<int64_t>(param.mlaVHeadSize);
  paged.scale = param.qkScale;
  paged.mask_kind = mask_kind(param.maskType);
  Inputs inputs(call);
  paged.query = inputs.take().device("query");
  paged.keys = inputs.take().device("keyCache");
  if (param.mlaVHeadSize == 0) paged.values = inputs.take().device("valueCache");
  paged.table = inputs.take().device("blockTables");
  paged.lengths = inputs.take().values("contextLens");
  if (param.maskType != kMaskUndefined) paged.mask = inputs.take().device("mask");
  paged.queries = param.calcType == kCalcSpec ? inputs.take().values("qSeqLens") : Ints(paged.lengths.size(), 1);
  inputs.finish();
  paged.out = only_output(call);
  return PagedCall::plan(std::move(paged));
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::PagedAttentionParam& param, Operation** operation) {
  return npusim::create("PagedAttention", param, npusim::paged_attention, operation);
}

}  // namespace atb
