// Attention over a paged cache, as all of ATB's attention operations compute it.
//
// Letters: B sequences, S their longest query, L their longest cached length, T all tokens of a packed batch, N heads,
// K key heads (each serves N / K heads), D the size of a head.
#pragma once

#include "../operators/operator.h"

namespace npusim {

// Which keys a query sees.
class AttentionMask {
 public:
  enum class Kind { kNone, kGiven, kCausal };  // causal: the triangle from the bottom right, whatever a mask holds

  // A mask that is given has two dimensions, one row for each token ([T, L]) or for each query position ([S, L]), or
  // three ([B, S, L]), or four ([B, N, S, L]); rows and columns may be more than needed. Floats are added to the
  // scores, other types hide.
  AttentionMask(Kind kind, const OptTensor& mask, const Ints& queries, const Ints& keys);

  Tensor hidden(int64_t rows, int64_t columns) const;   // bool, broadcastable to [B, N, S, L]
  OptTensor bias(int64_t rows, int64_t columns) const;  // the same shape, to be added to the scaled scores

 private:
  Kind kind_;
  Tensor padded_;
  const Ints& queries_;
  const Ints& keys_;
};

struct Attended {
  Tensor out;  // [T, N, D], float32
  Tensor lse;  // [T, N, 1], the log-sum-exp of the scaled scores
};

// Packed rows [T, ...] of sequences one after the other as [B, S, ...]. Rows past a length repeat some other row.
Tensor unpack(const Tensor& packed, const Ints& lengths);

// The attention of packed queries [T, N, D] over padded keys [B, K, L, D] and values. A row that sees no key gives
// zeros with a log-sum-exp of +inf. What lies past a sequence's length is not read.
Attended attend(const Tensor& query, const Tensor& key, const Tensor& value, double scale, const AttentionMask& mask,
                const Ints& queries, const Ints& keys);

// Refuse a table that does not name an existing block for every cached token; entries past those are never read.
void check_table(const Tensor& table, const Ints& lengths, const Tensor& cache);

// The cached rows of each sequence, [B, K, L, D]; `cache` is [blocks, rows of a block, K, D].
Tensor gather_blocks(const Tensor& cache, const Tensor& table, const Ints& lengths);

// Refuse numbers of heads and a scale that make no sense.
void check_heads(int64_t heads, int64_t kv_heads, double scale);

// Refuse lengths unless each sequence has a number of cached tokens up to `capacity`, and one of queries, which add up
// to `tokens`.
void check_lengths(const Ints& lengths, const Ints& queries, int64_t capacity, int64_t tokens);

// The workspace for these very lengths, in bytes. As on a device it is not monotone in them: a last block that is
// partly filled costs more than a full one. The formula is the simulator's own, the one of the reference kernels.
uint64_t attention_workspace(const Ints& lengths, int64_t block_rows, int64_t heads, int64_t dim);

}  // namespace npusim
