// Fused infer attention, behind torch_npu's `npu_fused_infer_attention_score` and its second version.
//
// Where the operator's documentation is silent, the choices are: rows of a padded query past its length are zero with a
// log-sum-exp of +inf, and so is a row that may see no key; `pse_shift` is added after scaling; ropes are further
// columns of query and key; a dense packed key may be longer than its last cumulative length.
#include <algorithm>
#include <map>
#include <set>

#include "attention.h"

using namespace npusim;
using namespace npusim::attention;

namespace {

constexpr int64_t kSplits = 8;        // partial outputs over the keys that a launch may keep in its workspace
constexpr int64_t kSplitRows = 128;   // keys of one split
constexpr uint64_t kAlignment = 512;

// The arguments that every version has, by the names of the interface.
struct FusedCall {
  Tensor query, key, value;
  OptTensor pse_shift, atten_mask;
  OptInts query_lengths, kv_lengths;
  OptTensor block_table, query_rope, key_rope;
  int64_t heads;
  double scale;
  int64_t before, after;
  std::string layout;
  int64_t kv_heads, sparse_mode, block_size;
  bool with_lse;
  Tensor out, lse;
};

struct Lengths {
  Ints queries, keys;
  int64_t capacity;  // the most columns that the keys may take, which a mask has to cover
};

constexpr const char* kQueryLengths = "actualSeqLengths";
constexpr const char* kKvLengths = "actualSeqLengthsKv";

const Tensor& only(const char* name, const Tensors& list) {
  refuse(list.size() > 1, (std::string(name) + " as a list of tensors").c_str());
  if (list.empty() || !list.front().defined()) throw std::invalid_argument(std::string(name) + " is missing");
  return list.front();
}

// The layout of inputs, and of the output if the name has a second part, as in BNSD_BSND.
std::pair<Layout, Layout> layouts_of(const std::string& name) {
  static const std::map<std::string, std::set<std::string>> outputs{{"BSH", {"BSH", "BNSD", "NBSD"}},
                                                                    {"BSND", {"BSND", "BNSD", "NBSD"}},
                                                                    {"BNSD", {"BNSD", "BSND", "NBSD"}},
                                                                    {"TND", {"TND", "NTD"}},
                                                                    {"NTD", {"NTD", "TND"}}};
  refuse(name == "NSD", "inputLayout NSD");
  const size_t cut = name.find('_');
  const std::string input = name.substr(0, cut), output = cut == std::string::npos ? input : name.substr(cut + 1);
  const auto known = outputs.find(input);
  require(known != outputs.end() && known->second.count(output),
          "inputLayout must be BSH, BSND, BNSD, TND, NTD or a pair such as BNSD_BSND; given '", name, "'");
  return {Layout(input), Layout(output)};
}

// One call after every check that needs no device memory.
class Fused {
 public:
  explicit Fused(FusedCall call);

  // Bytes that this call needs, for its lengths.
  uint64_t workspace() const { return workspace_for((longest(lengths_.keys) + kSplitRows - 1) / kSplitRows); }
  // Bytes that suit all lengths.
  uint64_t max_workspace() const { return workspace_for(kSplits); }

  void compute() const;

 private:
  uint64_t workspace_for(int64_t splits) const {
    const uint64_t partial = std::clamp<int64_t>(splits, 1, kSplits) * call_.out.numel() * sizeof(float);
    return kAlignment * (1 + (partial + kAlignment - 1) / kAlignment);
  }

  void check_types() const;
  void check_sources() const;
  void check_outputs() const;
  Lengths resolve_lengths() const;
  Ints query_lengths() const;
  Sizes source_sizes(const char* name, const Tensor& source) const;
  Tensor cache(const char* name, const Tensor& source) const;
  void check_table() const;
  Tensor source(const char* name, const Tensor& source) const;

  FusedCall call_;
  Layout input_, output_;
  int64_t kv_heads_ = 0;
  Sizes query_;
  Sparsity sparsity_;
  Lengths lengths_;
};

Fused::Fused(FusedCall call)
    : call_(std::move(call)), input_(layouts_of(call_.layout).first), output_(layouts_of(call_.layout).second) {
  require(call_.heads > 0, "numHeads must be positive; given ", call_.heads);
  require(call_.kv_heads == 0 || (call_.kv_heads > 0 && call_.heads % call_.kv_heads == 0),
          "numKeyValueHeads must divide ", call_.heads, " or be 0; given ", call_.kv_heads);
  kv_heads_ = call_.kv_heads > 0 ? call_.kv_heads : call_.heads;
  check_types();
  query_ = input_.sizes("query", call_.query, call_.heads);
  check_sources();
  lengths_ = resolve_lengths();
  // The device ignores mode and band for padded single rows without rope.
  sparsity_ = {call_.sparse_mode, call_.before, call_.after, input_.packed() || query_.rows > 1 || call_.query_rope};
  const auto batch = static_cast<int64_t>(lengths_.queries.size());
  const int64_t rows = input_.packed() ? longest(lengths_.queries) : query_.rows;
  check_mask(call_.atten_mask, sparsity_, batch, rows, lengths_.capacity);
  if (call_.pse_shift) fit("pseShift", *call_.pse_shift, batch, call_.heads, rows, lengths_.capacity);
  check_outputs();
}

void Fused::check_types() const {
  const at::ScalarType type = call_.query.scalar_type();
  refuse(!at::isFloatingType(type), (std::string("a query of ") + at::toString(type)).c_str());
  for (const OptTensor& one : {OptTensor(call_.key), OptTensor(call_.value), call_.query_rope, call_.key_rope})
    require(!one || one->scalar_type() == type, "query, key, value and ropes must share one type; given ", type,
            " and ", one ? one->scalar_type() : type);
  require(call_.query_rope.has_value() == call_.key_rope.has_value(), "queryRope and keyRope go together; given one");
}

void Fused::check_sources() const {
  const Sizes key = source_sizes("key", call_.key);
  const auto fits = [&](const char* name, const Sizes& sizes) {
    require(sizes.batch == key.batch && sizes.rows == key.rows, name, " must have the key's ", key.batch, " x ",
            key.rows, " rows; given ", sizes.batch, " x ", sizes.rows);
  };
  require(key.dim == query_.dim, "key heads must be ", query_.dim, " wide; given ", key.dim);
  fits("value", source_sizes("value", call_.value));
  if (call_.block_table) {
    require(call_.block_size > 0, "a blockTable needs a positive blockSize; given ", call_.block_size);
    require(key.rows == call_.block_size, "blockSize is ", call_.block_size, ", the key cache has blocks of ",
            key.rows);
  } else if (!input_.packed()) {
    require(key.batch == query_.batch, "key has batch ", key.batch, ", query ", query_.batch);
  }
  if (!call_.query_rope) return;
  const Sizes rope = source_sizes("keyRope", *call_.key_rope);
  fits("keyRope", rope);
  Sizes expected = query_;
  expected.dim = rope.dim;
  require(call_.query_rope->sizes() == at::IntArrayRef(input_.shape(expected)), "queryRope must have shape ",
          input_.shape(expected), "; given ", call_.query_rope->sizes());
}

void Fused::check_outputs() const {
  Sizes expected = query_;
  expected.dim = source_sizes("value", call_.value).dim;
  const auto shape = output_.shape(expected);
  require(call_.out.sizes() == at::IntArrayRef(shape), "attentionOut must have shape ", shape, "; given ",
          call_.out.sizes());
  refuse(call_.out.scalar_type() != call_.query.scalar_type(), "an output of another type than the query's");
  if (!call_.with_lse) return;
  const Ints lse = input_.packed() ? Ints{query_.rows, query_.heads, 1}
                                   : Ints{query_.batch, query_.heads, query_.rows, 1};
  require(call_.lse.sizes() == at::IntArrayRef(lse) && call_.lse.scalar_type() == at::kFloat,
          "softmaxLse must be float of shape ", lse, "; given ", call_.lse.scalar_type(), " ", call_.lse.sizes());
}

Ints Fused::query_lengths() const {
  if (!input_.packed()) {
    // A padded query of one row is always whole: the device ignores lengths there.
    const OptInts given = query_.rows == 1 ? std::nullopt : call_.query_lengths;
    return padded_lengths(kQueryLengths, given, query_.batch, query_.rows);
  }
  const Ints lengths = cumulative_lengths(kQueryLengths, call_.query_lengths);
  require(total(lengths) == query_.rows, kQueryLengths, " must end at T, the ", query_.rows,
          " tokens of the query; it ends at ", total(lengths));
  return lengths;
}

Lengths Fused::resolve_lengths() const {
  const Ints queries = query_lengths();
  const auto batch = static_cast<int64_t>(queries.size());
  if (call_.block_table) {
    const Tensor& table = *call_.block_table;
    require(table.dim() == 2 && table.size(0) == batch && table.scalar_type() == at::kInt, "blockTable must be int32 [",
            batch, ", blocks]; given ", table.scalar_type(), " ", table.sizes());
    require(call_.kv_lengths.has_value(), "a blockTable needs ", kKvLengths);
    const int64_t capacity = table.size(1) * call_.block_size;
    return {queries,
            input_.packed() ? exact_lengths(kKvLengths, *call_.kv_lengths, batch, capacity)
                            : padded_lengths(kKvLengths, call_.kv_lengths, batch, capacity),
            capacity};
  }
  const int64_t rows = source_sizes("key", call_.key).rows;
  if (!input_.packed()) return {queries, padded_lengths(kKvLengths, call_.kv_lengths, batch, rows), rows};
  const Ints keys = cumulative_lengths(kKvLengths, call_.kv_lengths);
  require(keys.size() == queries.size(), kKvLengths, " must have ", batch, " values, one a sequence; given ",
          keys.size());
  require(total(keys) <= rows, kKvLengths, " ends at ", total(keys), ", the key has ", rows, " tokens");
  return {queries, keys, longest(keys)};
}

Sizes Fused::source_sizes(const char* name, const Tensor& source) const {
  if (!call_.block_table) return input_.sizes(name, source, kv_heads_);
  const Tensor blocks = cache(name, source);
  require(blocks.size(2) == kv_heads_, "the ", name, " cache has ", blocks.size(2), " heads, ", kv_heads_,
          " were declared");
  return {blocks.size(0), blocks.size(1), blocks.size(2), blocks.size(3)};
}

// A paged cache as [blocks, block size, heads, dim]; it comes as [blocks, block size, H] or with the heads before the
// rows of a block.
Tensor Fused::cache(const char* name, const Tensor& source) const {
  refuse(source.dim() == 5, (std::string("a ") + name + " cache of five dimensions (NZ format)").c_str());
  require(source.dim() == 3 || source.dim() == 4, "a ", name, " cache has three or four dimensions; given ",
          source.sizes());
  if (source.dim() == 4) return source.transpose(1, 2);
  require(source.size(2) % kv_heads_ == 0, "H of the ", name, " cache must be a multiple of ", kv_heads_, "; given ",
          source.size(2));
  return source.unflatten(2, {kv_heads_, source.size(2) / kv_heads_});
}

// The one check that has to wait for the device: the block table lies in its memory.
void Fused::check_table() const {
  const int64_t blocks = call_.key.size(0);
  const auto table = call_.block_table->accessor<int32_t, 2>();
  for (size_t row = 0; row < lengths_.keys.size(); ++row)
    for (int64_t start = 0, at = 0; start < lengths_.keys[row]; start += call_.block_size, ++at) {
      const int64_t block = table[static_cast<int64_t>(row)][at];
      require(0 <= block && block < blocks, "block ids must lie in 0 to ", blocks - 1, "; row ", row,
              " of blockTable holds ", block);
    }
}

// A key-like tensor as [B, heads, longest, dim].
Tensor Fused::source(const char* name, const Tensor& source) const {
  const int64_t columns = longest(lengths_.keys);
  if (!call_.block_table) return input_.padded(source, kv_heads_, lengths_.keys).slice(2, 0, columns);
  const Tensor at = at::arange(columns);
  const Tensor block = call_.block_table->to(at::kLong).index_select(1, at.floor_divide(call_.block_size));
  const Tensor read = block.masked_fill(padding(lengths_.keys, columns), 0);
  return cache(name, source).index({read, at.remainder(call_.block_size)}).transpose(1, 2);
}

void Fused::compute() const {
  if (call_.block_table) check_table();
  Tensor query = input_.padded(call_.query, call_.heads, lengths_.queries);
  Tensor key = source("key", call_.key);
  if (call_.query_rope) {
    query = at::cat({query, input_.padded(*call_.query_rope, call_.heads, lengths_.queries)}, -1);
    key = at::cat({key, source("keyRope", *call_.key_rope)}, -1);
  }
  const int64_t batch = query.size(0), rows = query.size(2), columns = key.size(2);
  const Tensor absent = padding(lengths_.keys, columns);
  Tensor hidden = hidden_keys(call_.atten_mask, sparsity_, lengths_.queries, lengths_.keys, rows, columns);
  hidden = at::logical_or(hidden, padding(lengths_.queries, rows).unsqueeze(1).unsqueeze(-1));
  hidden = at::logical_or(hidden, absent.unsqueeze(1).unsqueeze(1));
  OptTensor bias;
  if (call_.pse_shift) bias = fit("pseShift", *call_.pse_shift, batch, call_.heads, rows, columns);
  const auto [out, lse] =
      attend(scores(query, key, call_.scale, hidden, bias), source("value", call_.value), absent);
  put(call_.out, output_.placed(out, lengths_.queries));
  if (call_.with_lse) put(call_.lse, input_.packed() ? Layout("TND").placed(lse, lengths_.queries) : lse);
}

}  // namespace

// The versions differ in their optional tensors: what the simulator has no mathematics for is refused by its name.
#define FUSED_TENSORS                                                                                                \
  Tensor query, Tensors key, Tensors value, OptTensor pseShift, OptTensor attenMask, OptInts actualSeqLengths,       \
      OptInts actualSeqLengthsKv, OptTensor deqScale1, OptTensor quantScale1, OptTensor deqScale2,                   \
      OptTensor quantScale2, OptTensor quantOffset2, OptTensor antiquantScale, OptTensor antiquantOffset,            \
      OptTensor blockTable, OptTensor queryPaddingSize, OptTensor kvPaddingSize, OptTensor keyAntiquantScale,        \
      OptTensor keyAntiquantOffset, OptTensor valueAntiquantScale, OptTensor valueAntiquantOffset,                   \
      OptTensor keySharedPrefix, OptTensor valueSharedPrefix, OptInts actualSharedPrefixLen
#define FUSED_ROPES OptTensor queryRope, OptTensor keyRope, OptTensor keyRopeAntiquantScale
#define FUSED_ATTRIBUTES                                                                                             \
  int64_t numHeads, double scale, int64_t preTokens, int64_t nextTokens, Text inputLayout, int64_t numKeyValueHeads, \
      int64_t sparseMode, int64_t /*innerPrecise*/, int64_t blockSize, int64_t /*antiquantMode*/, bool softmaxLseFlag, \
      int64_t /*keyAntiquantMode*/, int64_t /*valueAntiquantMode*/
#define FUSED_OUTPUTS Tensor attentionOut, Tensor softmaxLse

#define FUSED_REFUSALS                                                                                                \
  REFUSE(deqScale1), REFUSE(quantScale1), REFUSE(deqScale2), REFUSE(quantScale2), REFUSE(quantOffset2),              \
      REFUSE(antiquantScale), REFUSE(antiquantOffset), REFUSE(queryPaddingSize), REFUSE(kvPaddingSize),              \
      REFUSE(keyAntiquantScale), REFUSE(keyAntiquantOffset), REFUSE(valueAntiquantScale),                            \
      REFUSE(valueAntiquantOffset), REFUSE(keySharedPrefix), REFUSE(valueSharedPrefix), REFUSE(actualSharedPrefixLen)
#define FUSED_CALL(QUERY_ROPE, KEY_ROPE)                                                                             \
  FusedCall {                                                                                                        \
    query, only("key", key), only("value", value), pseShift, attenMask, actualSeqLengths, actualSeqLengthsKv,        \
        blockTable, QUERY_ROPE, KEY_ROPE, numHeads, scale, preTokens, nextTokens, inputLayout, numKeyValueHeads,     \
        sparseMode, blockSize, softmaxLseFlag, attentionOut, softmaxLse                                              \
  }

ACLNN_PLANNED(FusedInferAttentionScoreV2, Fused, (FUSED_TENSORS, FUSED_ATTRIBUTES, FUSED_OUTPUTS)) {
  FUSED_REFUSALS;
  return Fused(FUSED_CALL(std::nullopt, std::nullopt));
}

#define FUSED_V3 (FUSED_TENSORS, FUSED_ROPES, FUSED_ATTRIBUTES, FUSED_OUTPUTS)
ACLNN_PLANNED(FusedInferAttentionScoreV3, Fused, FUSED_V3) {
  FUSED_REFUSALS, REFUSE(keyRopeAntiquantScale);
  return Fused(FUSED_CALL(queryRope, keyRope));
}
ACLNN_PLANNED_MAX(FusedInferAttentionScoreV3, FUSED_V3)

#define FUSED_V4                                                                                                  \
  (FUSED_TENSORS, FUSED_ROPES, OptTensor dequantScaleQuery, OptTensor learnableSink, FUSED_ATTRIBUTES,             \
   int64_t /*queryQuantMode*/, FUSED_OUTPUTS)
ACLNN_PLANNED(FusedInferAttentionScoreV4, Fused, FUSED_V4) {
  FUSED_REFUSALS, REFUSE(keyRopeAntiquantScale), REFUSE(dequantScaleQuery), REFUSE(learnableSink);
  return Fused(FUSED_CALL(queryRope, keyRope));
}
ACLNN_PLANNED_MAX(FusedInferAttentionScoreV4, FUSED_V4)
