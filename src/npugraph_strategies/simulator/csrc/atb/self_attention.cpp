// Attention of whole prompts: over packed keys and values, or over a paged cache that holds a prefix too.
#include "paged_call.h"

namespace npusim {
namespace {

using Param = atb::infer::SelfAttentionParam;
using Kind = AttentionMask::Kind;

constexpr int32_t kMaskUndefined = 0, kMaskNorm = 1, kMaskNormCompress = 3;
constexpr int32_t kCalcPackedEncoder = 3, kCalcPrefixEncoder = 4;
constexpr int64_t kWorkspaceRows = 128;

void require_covered(const Param& param) {
  const bool plain = param.quantType == 0 && param.qScale == 1 && !param.batchRunStatusEnable &&
                     param.clampType == 0 && param.kvcacheCfg == 0 && param.scaleType == 0 && param.inputLayout == 0;
  NPUSIM_REQUIRE(plain, "quantisation, clamping, run status, scale types and BNSD are not simulated");
}

Kind mask_kind(int32_t type) {
  switch (type) {
    case kMaskUndefined: return Kind::kNone;
    case kMaskNorm: return Kind::kGiven;
    case kMaskNormCompress: return Kind::kCausal;  // the mask is a fixed triangle, its content says nothing new
    default: NPUSIM_REQUIRE(false, "maskType ", type, " is not simulated");
  }
}

struct PackedCall {
  aclTensor query, key, value, out;
  std::optional<aclTensor> mask;
  Ints lengths;
  int64_t heads, kv_heads;
  double scale;
  Kind mask_kind;

  void check() const {
    check_heads(heads, kv_heads, scale);
    int64_t tokens = 0;
    for (int64_t length : lengths) {
      NPUSIM_REQUIRE(length >= 0, "seqLen must not be negative; given ", length);
      tokens += length;
    }
    const auto packed = [&](const aclTensor& tensor, int64_t width) {
      return tensor.type == query.type && tensor.sizes.size() == 3 && tensor.sizes[0] == tokens &&
             tensor.sizes[1] == width;
    };
    const bool fits = packed(query, heads) && packed(key, kv_heads) && packed(value, kv_heads) &&
                      packed(out, heads) && key.sizes[2] == query.sizes[2] && out.sizes[2] == value.sizes[2];
    NPUSIM_REQUIRE(fits, "query, key, value and output must be [", tokens, ", heads, D] of one type, ", tokens,
                   " being the sum of seqLen; given ", at::IntArrayRef(query.sizes), ", ",
                   at::IntArrayRef(key.sizes), ", ", at::IntArrayRef(value.sizes), ", ", at::IntArrayRef(out.sizes));
  }

  void run() const {
    if (query.sizes[0] == 0) return;
    const auto padded = [this](const aclTensor& rows) { return unpack(view_of(rows), lengths).transpose(1, 2); };
    const AttentionMask seen(mask_kind, mask ? OptTensor(view_of(*mask)) : std::nullopt, lengths, lengths);
    put(view_of(out), attend(view_of(query), padded(key), padded(value), scale, seen, lengths, lengths).out);
  }
};

Plan packed_encoder(const Param& param, const Call& call) {
  PackedCall packed{};
  packed.heads = param.headNum;
  packed.kv_heads = param.kvHeadNum ? param.kvHeadNum : param.headNum;
  packed.scale = param.qkScale;
  packed.mask_kind = mask_kind(param.maskType);
  Inputs inputs(call);
  packed.query = inputs.take().device("query");
  packed.key = inputs.take().device("key");
  packed.value = inputs.take().device("value");
  if (param.maskType != kMaskUndefined) packed.mask = inputs.take().device("mask");
  packed.lengths = inputs.take().values("seqLen");
  inputs.finish();
  packed.out = only_output(call);
  packed.check();
  Plan plan;
  plan.workspace = attention_workspace(packed.lengths, kWorkspaceRows, packed.heads, packed.query.sizes[2]);
  plan.touched = {packed.query, packed.key, packed.value, packed.out};
  if (packed.mask) plan.touched.push_back(*packed.mask);
  plan.run = [packed = std::move(packed)] { packed.run(); };
  return plan;
}

Plan prefix_encoder(const Param& param, const Call& call) {
  PagedCall paged;
  paged.heads = param.headNum;
  paged.kv_heads = param.kvHeadNum ? param.kvHeadNum : param.headNum;
  paged.scale = param.qkScale;
  paged.mask_kind = mask_kind(param.maskType);
  Inputs inputs(call);
  paged.query = inputs.take().device("query");
  paged.keys = inputs.take().device("keyCache");
  paged.values = inputs.take().device("valueCache");
  paged.table = inputs.take().device("blockTables");
  if (param.maskType != kMaskUndefined) paged.mask = inputs.take().device("mask");
  paged.queries = inputs.take().values("seqLen");
  paged.lengths = inputs.take().values("kvSeqLen");
  inputs.finish();
  paged.out = only_output(call);
  return PagedCall::plan(std::move(paged));
}

Plan self_attention(const Param& param, const Call& call) {
  require_covered(param);
  switch (param.calcType) {
    case kCalcPackedEncoder: return packed_encoder(param, call);
    case kCalcPrefixEncoder: return prefix_encoder(param, call);
    default: NPUSIM_REQUIRE(false, "calcType ", param.calcType, " is not simulated");
  }
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::SelfAttentionParam& param, Operation** operation) {
  return npusim::create("SelfAttention", param, npusim::self_attention, operation);
}

}  // namespace atb
