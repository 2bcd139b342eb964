// Flash attention for training, forward and backward: what `npu_fusion_attention` and its later versions call.
//
// The softmax's maximum and sum are results of the forward pass and inputs of the backward pass, eight equal values to
// a row. In a packed layout a sequence's rows of them lie head by head unless the layout of the softmax says TND.
#include <limits>

#include "attention.h"

using namespace npusim;
using namespace npusim::attention;

namespace {

constexpr int64_t kCopies = 8;           // of each value of the softmax's maximum and sum
constexpr int64_t kSplitRows = 128;      // keys that one pass over a row of queries takes
constexpr uint64_t kAlignment = 512;
constexpr int64_t kAddThenScale = 1;     // pseType: scale * (query @ key^T + pse)
constexpr int64_t kScaleThenAdd = 0;     // pseType: scale * query @ key^T + pse

constexpr const char* kQueryLengths = "actualSeqQLen";
constexpr const char* kKvLengths = "actualSeqKvLen";

// What every version and both directions have.
struct FlashCall {
  Tensor query, key, value;
  OptTensor pse, atten_mask;
  OptInts query_lengths, kv_lengths;
  double scale, keep_prob;
  int64_t before, after, heads;
  std::string layout;
  int64_t sparse_mode;
  int64_t pse_type = kAddThenScale;
  std::string softmax_layout;
  Tensor softmax_max, softmax_sum, attention;
};

// One call after every check that needs no device memory.
class Flash {
 public:
  uint64_t workspace() const { return workspace_for(longest(keys_)); }
  uint64_t max_workspace() const { return workspace_for(key_.rows); }

 protected:
  explicit Flash(FlashCall call);

  // Scores are scaled sums of products, -inf where a query must not see a key.
  Tensor scores() const;
  OptTensor bias() const;
  Tensor padded_query(const Tensor& tensor) const { return layout_.padded(tensor, call_.heads, queries_); }
  Tensor padded_key(const Tensor& tensor) const { return layout_.padded(tensor, key_.heads, keys_); }
  // Between `[B, N, S, 1]` and what the softmax's maximum and sum look like in memory.
  void put_statistic(const Tensor& out, const Tensor& value) const;
  Tensor statistic(const Tensor& given) const;

  FlashCall call_;
  Layout layout_;
  Sizes query_, key_;
  Sparsity sparsity_;
  Ints queries_, keys_;  // rows of every sequence

 private:
  uint64_t workspace_for(int64_t columns) const {
    const uint64_t bytes = (columns + kSplitRows - 1) / kSplitRows * call_.query.numel() * sizeof(float);
    return kAlignment * (1 + (bytes + kAlignment - 1) / kAlignment);
  }
  Tensor by_row_or_head(const Tensor& statistic, bool by_head) const;
};

Flash::Flash(FlashCall call) : call_(std::move(call)), layout_(call_.layout) {
  refuse(call_.keep_prob < 1.0, "dropout (keepProb below 1)");
  require(call_.heads > 0, "headNum must be positive; given ", call_.heads);
  const at::ScalarType type = call_.query.scalar_type();
  refuse(!at::isFloatingType(type), (std::string("a query of ") + at::toString(type)).c_str());
  require(call_.key.scalar_type() == type && call_.value.scalar_type() == type,
          "query, key and value must share one type; given ", type, ", ", call_.key.scalar_type(), " and ",
          call_.value.scalar_type());
  query_ = layout_.sizes("query", call_.query, call_.heads);
  const int64_t axis = static_cast<int64_t>(call_.layout.find(call_.layout.back() == 'H' ? 'H' : 'N'));
  require(call_.key.dim() == call_.query.dim(), "key has ", call_.key.dim(), " dimensions, query ", call_.query.dim());
  const int64_t per_head = call_.layout.back() == 'H' ? query_.dim : 1;
  require(per_head > 0 && call_.key.size(axis) > 0 && call_.key.size(axis) % per_head == 0,
          "key must have heads of ", query_.dim, "; given ", call_.key.sizes());
  const int64_t kv_heads = call_.key.size(axis) / per_head;
  require(call_.heads % kv_heads == 0, "heads of the key must divide ", call_.heads, "; given ", kv_heads);
  key_ = layout_.sizes("key", call_.key, kv_heads);
  require(key_.dim == query_.dim && key_.batch == query_.batch, "key must have the query's batch and size of a head: ",
          query_.batch, " and ", query_.dim, "; given ", key_.batch, " and ", key_.dim);
  const Sizes value = layout_.sizes("value", call_.value, kv_heads);
  require(value.batch == key_.batch && value.rows == key_.rows, "value must have the key's ", key_.batch, " x ",
          key_.rows, " rows; given ", value.batch, " x ", value.rows);
  if (layout_.packed()) {
    queries_ = cumulative_lengths(kQueryLengths, call_.query_lengths);
    keys_ = cumulative_lengths(kKvLengths, call_.kv_lengths);
    require(queries_.size() == keys_.size(), kKvLengths, " must have ", queries_.size(),
            " values, one a sequence; given ", keys_.size());
    require(total(queries_) == query_.rows, kQueryLengths, " must end at T, the ", query_.rows,
            " tokens of the query; it ends at ", total(queries_));
    require(total(keys_) <= key_.rows, kKvLengths, " ends at ", total(keys_), ", the key has ", key_.rows, " tokens");
  } else {
    queries_ = fill(query_.batch, query_.rows);
    keys_ = fill(key_.batch, key_.rows);
  }
  sparsity_ = {call_.sparse_mode, call_.before, call_.after, true};
  const auto batch = static_cast<int64_t>(queries_.size());
  check_mask(call_.atten_mask, sparsity_, batch, longest(queries_), longest(keys_));
  if (call_.pse) {
    refuse(layout_.packed(), "pse in a packed layout");
    refuse(call_.pse_type != kAddThenScale && call_.pse_type != kScaleThenAdd, "pse that is made by the kernel");
    fit("pse", *call_.pse, batch, call_.heads, query_.rows, key_.rows);
  }
  require(call_.softmax_layout.empty() || call_.softmax_layout == "same_as_input" || call_.softmax_layout == "TND",
          "the layout of the softmax must be empty, same_as_input or TND; given '", call_.softmax_layout, "'");
  const Ints shape = layout_.packed() ? Ints{query_.rows, query_.heads, kCopies}
                                      : Ints{query_.batch, query_.heads, query_.rows, kCopies};
  for (const Tensor& one : {call_.softmax_max, call_.softmax_sum})
    require(one.sizes() == at::IntArrayRef(shape) && one.scalar_type() == at::kFloat,
            "softmaxMax and softmaxSum must be float of shape ", shape, "; given ", one.scalar_type(), " ",
            one.sizes());
  Sizes attention = query_;
  attention.dim = value.dim;
  require(call_.attention.sizes() == at::IntArrayRef(layout_.shape(attention)), "attention must have shape ",
          layout_.shape(attention), "; given ", call_.attention.sizes());
}

OptTensor Flash::bias() const {
  if (!call_.pse) return std::nullopt;
  const Tensor pse = wide(fit("pse", *call_.pse, query_.batch, call_.heads, query_.rows, key_.rows));
  return call_.pse_type == kAddThenScale ? pse * call_.scale : pse;
}

Tensor Flash::scores() const {
  const Tensor query = padded_query(call_.query), key = padded_key(call_.key);
  const int64_t rows = query.size(2), columns = key.size(2);
  Tensor hidden = hidden_keys(call_.atten_mask, sparsity_, queries_, keys_, rows, columns);
  hidden = at::logical_or(hidden, padding(queries_, rows).unsqueeze(1).unsqueeze(-1));
  hidden = at::logical_or(hidden, padding(keys_, columns).unsqueeze(1).unsqueeze(1));
  return attention::scores(query, key, call_.scale, hidden, bias());
}

// `[T, N, 8]` with the rows of each sequence taken from one order of rows and heads to the other.
Tensor Flash::by_row_or_head(const Tensor& statistic, bool by_head) const {
  if (call_.softmax_layout == "same_as_input" || call_.softmax_layout == "TND") return statistic;
  Tensors sequences{statistic.new_empty({0, kCopies})};
  int64_t start = 0;
  for (const int64_t rows : queries_) {
    const Tensor one = statistic.slice(0, start, start + rows);
    const Tensor from = by_head ? one : one.reshape({query_.heads, rows, kCopies});
    sequences.push_back(from.transpose(0, 1).reshape({-1, kCopies}));
    start += rows;
  }
  return at::cat(sequences).reshape(statistic.sizes());
}

void Flash::put_statistic(const Tensor& out, const Tensor& value) const {
  const Tensor copies = value.expand({-1, -1, -1, kCopies});
  put(out, layout_.packed() ? by_row_or_head(Layout("TND").placed(copies, queries_), true) : copies);
}

Tensor Flash::statistic(const Tensor& given) const {
  const Tensor copies =
      layout_.packed() ? Layout("TND").padded(by_row_or_head(given, false), query_.heads, queries_) : given;
  return copies.slice(3, 0, 1);
}

class FlashForward : public Flash {
 public:
  explicit FlashForward(FlashCall call) : Flash(std::move(call)) {}

  void compute() const {
    constexpr double lowest = std::numeric_limits<float>::lowest(), highest = std::numeric_limits<float>::max();
    const Tensor scores = this->scores();
    const Tensor value = padded_key(call_.value);
    const auto [out, lse] = attend(scores, value, padding(keys_, value.size(2)));
    // A row that sees no key has the least maximum and the greatest sum, so that nothing is left of it.
    const Tensor empty = at::isinf(lse);
    const Tensor max = scores.size(3) == 0 ? at::full_like(lse, lowest) : scores.amax({-1}, true).clamp_min(lowest);
    const Tensor sum = at::exp(lse.masked_fill(empty, 0.0) - max.masked_fill(empty, 0.0)).masked_fill(empty, highest);
    put(call_.attention, layout_.placed(out, queries_));
    put_statistic(call_.softmax_max, max);
    put_statistic(call_.softmax_sum, sum);
  }
};

struct Gradients {
  Tensor attention, query, key, value;
  OptTensor pse;
};

class FlashBackward : public Flash {
 public:
  FlashBackward(FlashCall call, Gradients gradients) : Flash(std::move(call)), gradients_(std::move(gradients)) {
    const auto like = [](const char* name, const Tensor& gradient, const Tensor& of) {
      require(gradient.sizes() == of.sizes(), name, " must have shape ", of.sizes(), "; given ", gradient.sizes());
    };
    like("dy", gradients_.attention, call_.attention);
    like("dq", gradients_.query, call_.query);
    like("dk", gradients_.key, call_.key);
    like("dv", gradients_.value, call_.value);
    if (call_.pse && gradients_.pse) like("dpse", *gradients_.pse, *call_.pse);
  }

  // With P the weights and dP = dy @ value^T, the gradient of the scores is P * (dP - sum(dy * attention)).
  void compute() const {
    const int64_t kv_heads = key_.heads;
    const Tensor query = fold(wide(padded_query(call_.query)), kv_heads), key = wide(padded_key(call_.key));
    const Tensor dy = wide(padded_query(gradients_.attention)), attention = wide(padded_query(call_.attention));
    const Tensor weights = at::exp(scores() - statistic(call_.softmax_max)) / statistic(call_.softmax_sum);
    const Tensor upstream = fold(dy, kv_heads), folded = fold(weights, kv_heads);
    const Tensor dweights = at::matmul(upstream, wide(padded_key(call_.value)).transpose(2, 3));
    const Tensor dscores = folded * (dweights - fold((dy * attention).sum(-1, true), kv_heads));
    const Tensor dquery = at::matmul(dscores, key) * call_.scale;
    put(gradients_.query, layout_.placed(dquery.reshape({-1, query_.heads, weights.size(2), query_.dim}), queries_));
    put_key(gradients_.key, at::matmul(dscores.transpose(2, 3), query) * call_.scale);
    put_key(gradients_.value, at::matmul(folded.transpose(2, 3), upstream));
    if (!call_.pse || !gradients_.pse) return;
    const double factor = call_.pse_type == kAddThenScale ? call_.scale : 1.0;
    const Tensor dpse = at::sum_to(dscores.reshape(weights.sizes()) * factor,
                                   fit("pse", *call_.pse, query_.batch, call_.heads, query_.rows, key_.rows).sizes());
    gradients_.pse->zero_();
    fit("dpse", *gradients_.pse, query_.batch, call_.heads, query_.rows, key_.rows).copy_(dpse);
  }

 private:
  // A packed key may have rows past its last sequence; nothing depends on them.
  void put_key(const Tensor& out, const Tensor& value) const {
    const Tensor placed = layout_.placed(value, keys_);
    if (!layout_.packed()) return put(out, placed);
    out.zero_();
    put(out.slice(0, 0, placed.size(0)), placed);
  }

  Gradients gradients_;
};

}  // namespace

// The versions of a packed and of a padded layout, and of each direction, share most of their parameters.
#define FLASH_OPTIONS OptTensor realShift, OptTensor dropMask, OptTensor paddingMask, OptTensor attenMask
#define FLASH_LENGTHS OptInts actualSeqQLen, OptInts actualSeqKvLen
#define FLASH_ATTRIBUTES                                                                                          \
  double scaleValue, double keepProb, int64_t preTokens, int64_t nextTokens, int64_t headNum, Text inputLayout,   \
      int64_t /*innerPrecise*/, int64_t sparseMode
#define FLASH_STARTS Ints qStartIdx, Ints kvStartIdx
#define FLASH_OUTPUTS Tensor softmaxMax, Tensor softmaxSum, OptTensor /*softmaxOut*/, Tensor attention
#define FLASH_INPUTS Tensor softmaxMax, Tensor softmaxSum, OptTensor /*softmaxIn*/, Tensor attention
#define FLASH_GRADIENTS Tensor dq, Tensor dk, Tensor dv, OptTensor dpse

#define FLASH_REFUSALS                                                                          \
  npusim::attention::refuse(dropMask.has_value(), "dropout (dropMask)"), REFUSE(paddingMask), \
      npusim::attention::refuse(!prefix.empty(), "prefix")
#define FLASH_START_REFUSALS \
  npusim::attention::refuse(!qStartIdx.empty() || !kvStartIdx.empty(), "qStartIdx and kvStartIdx")
#define FLASH_EXTRA_REFUSALS REFUSE(queryRope), REFUSE(keyRope), REFUSE(sink)
#define FLASH_CALL(QUERY_LENGTHS, KV_LENGTHS, PSE_TYPE, SOFTMAX_LAYOUT)                                               \
  FlashCall {                                                                                                         \
    query, key, value, realShift, attenMask, QUERY_LENGTHS, KV_LENGTHS, scaleValue, keepProb, preTokens, nextTokens,  \
        headNum, inputLayout, sparseMode, PSE_TYPE, SOFTMAX_LAYOUT, softmaxMax, softmaxSum, attention                 \
  }

ACLNN_PLANNED(FlashAttentionScore, FlashForward,
              (Tensor query, Tensor key, Tensor value, FLASH_OPTIONS, Ints prefix, FLASH_ATTRIBUTES, FLASH_OUTPUTS)) {
  FLASH_REFUSALS;
  return FlashForward(FLASH_CALL(std::nullopt, std::nullopt, kAddThenScale, ""));
}

ACLNN_PLANNED(FlashAttentionVarLenScore, FlashForward,
              (Tensor query, Tensor key, Tensor value, FLASH_OPTIONS, Ints prefix, FLASH_LENGTHS, FLASH_ATTRIBUTES,
               FLASH_OUTPUTS)) {
  FLASH_REFUSALS;
  return FlashForward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, kAddThenScale, ""));
}

ACLNN_PLANNED(FlashAttentionScoreV2, FlashForward,
              (Tensor query, Tensor key, Tensor value, FLASH_OPTIONS, Ints prefix, FLASH_STARTS, FLASH_ATTRIBUTES,
               int64_t pseType, FLASH_OUTPUTS)) {
  FLASH_REFUSALS, FLASH_START_REFUSALS;
  return FlashForward(FLASH_CALL(std::nullopt, std::nullopt, pseType, ""));
}

ACLNN_PLANNED(FlashAttentionVarLenScoreV2, FlashForward,
              (Tensor query, Tensor key, Tensor value, FLASH_OPTIONS, Ints prefix, FLASH_LENGTHS, FLASH_STARTS,
               FLASH_ATTRIBUTES, int64_t pseType, FLASH_OUTPUTS)) {
  FLASH_REFUSALS, FLASH_START_REFUSALS;
  return FlashForward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, pseType, ""));
}

ACLNN_PLANNED(FlashAttentionVarLenScoreV4, FlashForward,
              (Tensor query, Tensor key, Tensor value, FLASH_OPTIONS, Ints prefix, FLASH_LENGTHS, FLASH_ATTRIBUTES,
               Text softmaxOutLayout, FLASH_OUTPUTS)) {
  FLASH_REFUSALS;
  return FlashForward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, kAddThenScale, softmaxOutLayout));
}

#define FLASH_FORWARD_V5                                                                                             \
  (Tensor query, OptTensor queryRope, Tensor key, OptTensor keyRope, Tensor value, FLASH_OPTIONS, OptTensor sink,    \
   Ints prefix, FLASH_LENGTHS, FLASH_STARTS, FLASH_ATTRIBUTES, int64_t pseType, Text softmaxOutLayout, FLASH_OUTPUTS)
ACLNN_PLANNED(FlashAttentionVarLenScoreV5, FlashForward, FLASH_FORWARD_V5) {
  FLASH_REFUSALS, FLASH_START_REFUSALS, FLASH_EXTRA_REFUSALS;
  return FlashForward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, pseType, softmaxOutLayout));
}
ACLNN_PLANNED_MAX(FlashAttentionVarLenScoreV5, FLASH_FORWARD_V5)

ACLNN_PLANNED(FlashAttentionScoreGrad, FlashBackward,
              (Tensor query, Tensor key, Tensor value, Tensor dy, FLASH_OPTIONS, FLASH_INPUTS, Ints prefix,
               FLASH_ATTRIBUTES, FLASH_GRADIENTS)) {
  FLASH_REFUSALS;
  return FlashBackward(FLASH_CALL(std::nullopt, std::nullopt, kAddThenScale, ""), {dy, dq, dk, dv, dpse});
}

ACLNN_PLANNED(FlashAttentionUnpaddingScoreGrad, FlashBackward,
              (Tensor query, Tensor key, Tensor value, Tensor dy, FLASH_OPTIONS, FLASH_INPUTS, Ints prefix,
               FLASH_LENGTHS, FLASH_ATTRIBUTES, FLASH_GRADIENTS)) {
  FLASH_REFUSALS;
  return FlashBackward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, kAddThenScale, ""), {dy, dq, dk, dv, dpse});
}

ACLNN_PLANNED(FlashAttentionScoreGradV2, FlashBackward,
              (Tensor query, Tensor key, Tensor value, Tensor dy, FLASH_OPTIONS, FLASH_INPUTS, Ints prefix,
               FLASH_STARTS, FLASH_ATTRIBUTES, int64_t pseType, FLASH_GRADIENTS)) {
  FLASH_REFUSALS, FLASH_START_REFUSALS;
  return FlashBackward(FLASH_CALL(std::nullopt, std::nullopt, pseType, ""), {dy, dq, dk, dv, dpse});
}

ACLNN_PLANNED(FlashAttentionUnpaddingScoreGradV2, FlashBackward,
              (Tensor query, Tensor key, Tensor value, Tensor dy, FLASH_OPTIONS, FLASH_INPUTS, Ints prefix,
               FLASH_LENGTHS, FLASH_STARTS, FLASH_ATTRIBUTES, int64_t pseType, FLASH_GRADIENTS)) {
  FLASH_REFUSALS, FLASH_START_REFUSALS;
  return FlashBackward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, pseType, ""), {dy, dq, dk, dv, dpse});
}

ACLNN_PLANNED(FlashAttentionUnpaddingScoreGradV4, FlashBackward,
              (Tensor query, Tensor key, Tensor value, Tensor dy, FLASH_OPTIONS, FLASH_INPUTS, Ints prefix,
               FLASH_LENGTHS, FLASH_ATTRIBUTES, FLASH_GRADIENTS, Text softmaxInLayout)) {
  FLASH_REFUSALS;
  return FlashBackward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, kAddThenScale, softmaxInLayout),
                       {dy, dq, dk, dv, dpse});
}

// Gradients of ropes and of a sink are outputs without elements here.
#define FLASH_BACKWARD_V5                                                                                            \
  (Tensor query, OptTensor queryRope, Tensor key, OptTensor keyRope, Tensor value, Tensor dy, FLASH_OPTIONS,         \
   FLASH_INPUTS, OptTensor sink, Ints prefix, FLASH_LENGTHS, FLASH_STARTS, FLASH_ATTRIBUTES, int64_t pseType,        \
   Text softmaxInLayout, Tensor dq, OptTensor /*dqRope*/, Tensor dk, OptTensor /*dkRope*/, Tensor dv,                \
   OptTensor dpse, OptTensor /*dsink*/)
ACLNN_PLANNED(FlashAttentionUnpaddingScoreGradV5, FlashBackward, FLASH_BACKWARD_V5) {
  FLASH_REFUSALS, FLASH_START_REFUSALS, FLASH_EXTRA_REFUSALS;
  return FlashBackward(FLASH_CALL(actualSeqQLen, actualSeqKvLen, pseType, softmaxInLayout), {dy, dq, dk, dv, dpse});
}
ACLNN_PLANNED_MAX(FlashAttentionUnpaddingScoreGradV5, FLASH_BACKWARD_V5)
