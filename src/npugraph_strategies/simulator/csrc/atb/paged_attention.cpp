// Paged attention for decoding, for mixed batches (split fuse), and over a cache whose values are part of its keys.
#include <cmath>

#include "attention.h"
#include "operation.h"

namespace npusim {
namespace {

using Param = atb::infer::PagedAttentionParam;
using Kind = AttentionMask::Kind;

constexpr int32_t kMaskUndefined = 0, kMaskNorm = 1, kMaskSpec = 3, kMaskMaskFree = 4, kMaskNormCompress = 5;
constexpr int32_t kCalcUndefined = 0, kCalcSpec = 1;
constexpr int32_t kMostHeads = 4096;

void require_covered(const Param& param) {
  const bool sane = param.headNum > 0 && param.headNum <= kMostHeads && param.kvHeadNum >= 0 &&
                    param.kvHeadNum <= param.headNum && std::isfinite(param.qkScale) && param.maskType >= 0 &&
                    param.calcType >= 0;
  NPUSIM_REQUIRE(sane, "parameters make no sense (", param.headNum, " heads, ", param.kvHeadNum,
                 " key heads, scale ", param.qkScale, ")");
  const bool plain = !param.batchRunStatusEnable && param.quantType == 0 && !param.hasQuantOffset &&
                     param.compressType == 0 && param.scaleType == 0 && param.inputLayout == 0;
  NPUSIM_REQUIRE(plain, "quantisation, compression, run status, scale types and BNSD are not simulated");
  NPUSIM_REQUIRE(param.calcType == kCalcUndefined || param.calcType == kCalcSpec, "calcType ", param.calcType,
                 " is not simulated");
}

Kind mask_kind(const Param& param) {
  switch (param.maskType) {
    case kMaskUndefined: return Kind::kNone;
    case kMaskNorm:
    case kMaskSpec: return Kind::kGiven;
    case kMaskMaskFree:
    case kMaskNormCompress: return Kind::kCausal;  // the mask is a fixed triangle, its content says nothing new
    default: NPUSIM_REQUIRE(false, "maskType ", param.maskType, " is not simulated");
  }
}

// What a call says, after every check that does not need the device's memory.
struct Arguments {
  aclTensor query, keys, table, out;
  std::optional<aclTensor> values, mask;
  Ints lengths, queries;

  Arguments(const Param& param, const Call& call) {
    size_t next = 0;
    const auto take = [&]() -> const Operand& {
      NPUSIM_REQUIRE(next < call.inputs.size(), call.inputs.size(), " inputs are fewer than these parameters ask for");
      return call.inputs[next++];
    };
    query = take().device("query");
    keys = take().device("keyCache");
    if (param.mlaVHeadSize == 0) values = take().device("valueCache");
    table = take().device("blockTables");
    lengths = take().values("contextLens");
    if (param.maskType != kMaskUndefined) mask = take().device("mask");
    if (param.calcType == kCalcSpec)
      queries = take().values("qSeqLens");
    else
      queries.assign(lengths.size(), 1);
    NPUSIM_REQUIRE(next == call.inputs.size(), call.inputs.size(), " inputs were given, ", next, " are expected");
    NPUSIM_REQUIRE(call.outputs.size() == 1, "one output is expected; given ", call.outputs.size());
    out = call.outputs[0].device("out");
    check(param);
  }

 private:
  void check(const Param& param) const {
    const int64_t heads = param.headNum, kv_heads = param.kvHeadNum ? param.kvHeadNum : heads;
    const auto batch = static_cast<int64_t>(lengths.size());
    NPUSIM_REQUIRE(heads % kv_heads == 0, kv_heads, " key heads must divide ", heads, " heads");
    NPUSIM_REQUIRE(query.sizes.size() == 3 && keys.sizes.size() == 4 && table.sizes.size() == 2,
                   "query, caches and table have 3, 4 and 2 dimensions; given ", query.sizes.size(), ", ",
                   keys.sizes.size(), ", ", table.sizes.size());
    NPUSIM_REQUIRE(query.sizes[1] == heads, "the query has ", query.sizes[1], " heads, ", heads, " were declared");
    const auto covers = [&](const aclTensor& cache) {
      return cache.type == query.type && cache.sizes.size() == 4 && cache.sizes[0] == keys.sizes[0] &&
             cache.sizes[1] == keys.sizes[1] && cache.sizes[2] == kv_heads;
    };
    NPUSIM_REQUIRE(covers(keys) && keys.sizes[3] == query.sizes[2], "keyCache must be [blocks, rows, ", kv_heads, ", ",
                   query.sizes[2], "] of the query's type; given ", at::IntArrayRef(keys.sizes));
    NPUSIM_REQUIRE(!values || covers(*values), "valueCache must be [", keys.sizes[0], ", ", keys.sizes[1], ", ",
                   kv_heads, ", D] of the query's type; given ", at::IntArrayRef(values ? values->sizes : Ints()));
    NPUSIM_REQUIRE(table.type == ACL_INT32, "blockTables must be int32");
    NPUSIM_REQUIRE(queries.size() == lengths.size(), "qSeqLens must have ", batch, " values; given ", queries.size());
    int64_t tokens = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      NPUSIM_REQUIRE(lengths[i] >= 0 && lengths[i] <= table.sizes[1] * keys.sizes[1], "contextLens must lie in 0 to ",
                     table.sizes[1] * keys.sizes[1], "; given ", lengths[i]);
      NPUSIM_REQUIRE(queries[i] >= 0, "qSeqLens must not be negative; given ", queries[i]);
      tokens += queries[i];
    }
    NPUSIM_REQUIRE(tokens == query.sizes[0], "the query has ", query.sizes[0], " tokens, the lengths say ", tokens);
    NPUSIM_REQUIRE(table.sizes[0] >= batch, "blockTables must have ", batch, " rows; given ", table.sizes[0]);
    const Ints expected{tokens, heads, values ? values->sizes[3] : static_cast<int64_t>(param.mlaVHeadSize)};
    NPUSIM_REQUIRE(out.sizes == expected && out.type == query.type, "out must be ", at::IntArrayRef(expected),
                   " of the query's type; given ", at::IntArrayRef(out.sizes));
    NPUSIM_REQUIRE(expected[2] <= keys.sizes[3] || values, "mlaVHeadSize must be at most ", keys.sizes[3],
                   "; given ", param.mlaVHeadSize);
  }
};

void compute(const Param& param, Kind kind, const Arguments& given) {
  if (given.lengths.empty()) return;
  const Tensor cache = view_of(given.keys), table = view_of(given.table);
  check_table(table, given.lengths, cache);
  const Tensor keys = gather_blocks(cache, table, given.lengths);
  const Tensor values = given.values ? gather_blocks(view_of(*given.values), table, given.lengths)
                                     : keys.slice(3, 0, static_cast<int64_t>(param.mlaVHeadSize));
  const AttentionMask mask(kind, given.mask ? OptTensor(view_of(*given.mask)) : std::nullopt, given.queries,
                           given.lengths);
  put(view_of(given.out),
      attend(view_of(given.query), keys, values, param.qkScale, mask, given.queries, given.lengths).out);
}

Plan paged_attention(const Param& param, const Call& call) {
  require_covered(param);
  const Kind kind = mask_kind(param);
  Arguments given(param, call);
  Plan plan;
  plan.workspace = attention_workspace(given.lengths, given.keys.sizes[1], param.headNum, given.query.sizes[2]);
  plan.touched = {given.query, given.keys, given.table, given.out};
  if (given.values) plan.touched.push_back(*given.values);
  if (given.mask) plan.touched.push_back(*given.mask);
  plan.run = [param, kind, given = std::move(given)] { compute(param, kind, given); };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::PagedAttentionParam& param, Operation** operation) {
  return npusim::create("PagedAttention", param, npusim::paged_attention, operation);
}

}  // namespace atb
