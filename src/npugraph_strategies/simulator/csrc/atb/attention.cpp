#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace npusim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t longest(const Ints& lengths) { return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end()); }

int64_t total(const Ints& lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

int64_t blocks_needed(int64_t length, int64_t block_rows) { return (length + block_rows - 1) / block_rows; }

// [B, width], true past each length.
Tensor padding(const Ints& lengths, int64_t width) { return at::arange(width) >= at::tensor(lengths).unsqueeze(1); }

// The first rows of each sequence of [B, N, S, ...] as [T, N, ...].
Tensor pack(const Tensor& padded, const Ints& lengths) {
  return padded.transpose(1, 2).index({padding(lengths, padded.size(2)).logical_not()});
}

}  // namespace

Tensor unpack(const Tensor& packed, const Ints& lengths) {
  const Tensor ends = at::tensor(lengths).cumsum(0).unsqueeze(1);
  const Tensor rows = ends - at::tensor(lengths).unsqueeze(1) + at::arange(longest(lengths));
  return packed.index({rows.masked_fill(rows >= ends, 0)});
}

AttentionMask::AttentionMask(Kind kind, const OptTensor& mask, const Ints& queries, const Ints& keys)
    : kind_(kind), queries_(queries), keys_(keys) {
  if (kind != Kind::kGiven) return;
  TORCH_CHECK_VALUE(mask.has_value() && mask->dim() >= 2 && mask->dim() <= 4,
                    "a mask must have two to four dimensions");
  const int64_t batch = static_cast<int64_t>(keys.size()), rows = longest(queries), columns = longest(keys);
  if (mask->dim() == 4)
    padded_ = *mask;
  else if (mask->dim() == 3)
    padded_ = mask->unsqueeze(1);
  else if (mask->size(0) == total(queries))
    padded_ = unpack(*mask, queries).unsqueeze(1);
  else
    padded_ = mask->unsqueeze(0).unsqueeze(0);
  const bool fits = (padded_.size(0) == 1 || padded_.size(0) == batch) &&
                    (padded_.size(2) == 1 || padded_.size(2) >= rows) && padded_.size(3) >= columns;
  TORCH_CHECK_VALUE(fits, "a mask must fit ", batch, " sequences of ", rows, " queries and ", columns,
                    " keys; given ", mask->sizes());
}

Tensor AttentionMask::hidden(int64_t rows, int64_t columns) const {
  if (kind_ == Kind::kCausal) {
    const Tensor shift = at::tensor(keys_) - at::tensor(queries_);
    return at::arange(columns) - at::arange(rows).unsqueeze(1) > shift.view({-1, 1, 1, 1});
  }
  if (kind_ == Kind::kNone || padded_.is_floating_point()) return at::zeros({1, 1, 1, 1}, at::kBool);
  return padded_.slice(2, 0, rows).slice(3, 0, columns).to(at::kBool);
}

OptTensor AttentionMask::bias(int64_t rows, int64_t columns) const {
  if (kind_ != Kind::kGiven || !padded_.is_floating_point()) return std::nullopt;
  return padded_.slice(2, 0, rows).slice(3, 0, columns).to(at::kFloat);
}

Attended attend(const Tensor& query, const Tensor& key, const Tensor& value, double scale, const AttentionMask& mask,
                const Ints& queries, const Ints& keys) {
  const Tensor padded = unpack(query, queries).transpose(1, 2).to(at::kFloat);
  const int64_t batch = padded.size(0), heads = padded.size(1), rows = padded.size(2);
  const int64_t kv_heads = key.size(1), columns = key.size(2), group = heads / kv_heads;
  const Tensor absent = padding(keys, columns);
  const Tensor folded = padded.reshape({batch, kv_heads, group * rows, padded.size(3)});
  Tensor scores = at::matmul(folded, key.to(at::kFloat).transpose(2, 3)).reshape({batch, heads, rows, columns}) * scale;
  if (const OptTensor bias = mask.bias(rows, columns)) scores = scores + *bias;
  const Tensor unseen = mask.hidden(rows, columns)
                            .logical_or(absent.view({batch, 1, 1, columns}))
                            .logical_or(padding(queries, rows).view({batch, 1, rows, 1}));
  scores = scores.masked_fill(unseen, -kInfinity);
  const Tensor lse = at::logsumexp(scores, {-1}, true);
  const Tensor empty = lse == -kInfinity;
  const Tensor weights = at::exp(scores - lse.masked_fill(empty, 0.0));
  // Absent values may be anything the memory holds, and zero times NaN is NaN.
  const Tensor present = value.to(at::kFloat).masked_fill(absent.view({batch, 1, columns, 1}), 0.0);
  const Tensor out = at::matmul(weights.reshape({batch, kv_heads, group * rows, columns}), present)
                         .reshape({batch, heads, rows, value.size(3)});
  return {pack(out, queries), pack(lse.masked_fill(empty, kInfinity), queries)};
}

void check_heads(int64_t heads, int64_t kv_heads, double scale) {
  constexpr int64_t kMostHeads = 4096;
  const bool sane = kv_heads > 0 && kv_heads <= heads && heads <= kMostHeads && heads % kv_heads == 0;
  TORCH_CHECK_VALUE(sane && std::isfinite(scale),
                    "key heads must divide the heads, and the scale must be finite; given ", heads, " heads, ",
                    kv_heads, " key heads, scale ", scale);
}

void check_lengths(const Ints& lengths, const Ints& queries, int64_t capacity, int64_t tokens) {
  TORCH_CHECK_VALUE(queries.size() == lengths.size(), "there must be one query length for each of ", lengths.size(),
                    " sequences; given ", queries.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    TORCH_CHECK_VALUE(lengths[i] >= 0 && lengths[i] <= capacity, "context lengths must lie in 0 to ", capacity,
                      ", which is what the block table holds; given ", lengths[i]);
    TORCH_CHECK_VALUE(queries[i] >= 0, "query lengths must not be negative; given ", queries[i]);
  }
  TORCH_CHECK_VALUE(total(queries) == tokens, "the query has ", tokens, " tokens, the lengths say ", total(queries));
}

void check_table(const Tensor& table, const Ints& lengths, const Tensor& cache) {
  for (size_t sequence = 0; sequence < lengths.size(); ++sequence) {
    const int64_t needed = blocks_needed(lengths[sequence], cache.size(1));
    const Tensor ids = table[static_cast<int64_t>(sequence)].slice(0, 0, needed).to(at::kLong);
    const Tensor wrong = ids.masked_select((ids < 0).logical_or(ids >= cache.size(0)));
    TORCH_CHECK_VALUE(wrong.numel() == 0, "block ids must lie in 0 to ", cache.size(0) - 1, "; sequence ", sequence,
                      " of the block table holds ", wrong[0].item<int64_t>());
  }
}

Tensor gather_blocks(const Tensor& cache, const Tensor& table, const Ints& lengths) {
  const int64_t width = longest(lengths), block_rows = cache.size(1);
  const Tensor positions = at::arange(width);
  const Tensor blocks = table.slice(0, 0, static_cast<int64_t>(lengths.size()))
                            .to(at::kLong)
                            .index_select(1, positions.floor_divide(block_rows))
                            .masked_fill(padding(lengths, width), 0);
  return cache.index({blocks, positions.remainder(block_rows).expand_as(blocks)}).transpose(1, 2);
}

uint64_t attention_workspace(const Ints& lengths, int64_t block_rows, int64_t heads, int64_t dim) {
  constexpr int64_t kAlignment = 512, kPartialCost = 4;
  int64_t blocks = 0;
  for (int64_t length : lengths)
    blocks += blocks_needed(length, block_rows) + (length % block_rows != 0 ? kPartialCost : 0);
  return static_cast<uint64_t>(kAlignment + blocks * heads * dim * static_cast<int64_t>(sizeof(float)));
}

}  // namespace npusim
