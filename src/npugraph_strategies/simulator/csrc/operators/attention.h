// What the attention operators have in common: layouts, lengths, masks, and the softmax itself.
//
// Everything is computed on `[B, N, S, D]`: batch, heads, rows, size of a head. In a layout's name H is N x D, and T is
// all the rows of a packed batch, one sequence after the other.
#pragma once

#include <string>
#include <vector>

#include "operator.h"

namespace npusim::attention {

// Refuses, as CANN's tiling does, arguments that do not fit one another.
template <typename... Parts>
void require(bool fact, const Parts&... parts) {
  if (!fact) throw Refusal(kTilingFailed, c10::str(parts...));
}

// Refuses an argument that the simulator has no mathematics for.
void refuse(bool given, const char* what);

struct Sizes {
  int64_t batch = 1;  // 1 in a packed layout
  int64_t rows = 0;   // S, or T in a packed layout
  int64_t heads = 0;
  int64_t dim = 0;
};

// The order of a tensor's dimensions, in letters: BSH, SBH, BSND, BNSD, NBSD, TND or NTD.
class Layout {
 public:
  explicit Layout(const std::string& letters);

  bool packed() const { return order_.front() == 'T' || order_[1] == 'T'; }
  const std::string& letters() const { return letters_; }

  // The sizes of a tensor of `heads` heads, which is what tells N from D in H.
  Sizes sizes(const char* name, const Tensor& tensor, int64_t heads) const;
  // The shape of a tensor of these sizes.
  std::vector<int64_t> shape(const Sizes& sizes) const;
  // A tensor as `[B, N, S, D]`; a packed one is cut into `lengths`, and rows past a length hold anything.
  Tensor padded(const Tensor& tensor, int64_t heads, const Ints& lengths) const;
  // The way back: a packed layout keeps the first `lengths` rows of each sequence.
  Tensor placed(const Tensor& padded, const Ints& lengths) const;

 private:
  std::string letters_;
  std::string order_;  // the letters, with H taken apart
};

Ints fill(int64_t batch, int64_t length);
int64_t longest(const Ints& lengths);
int64_t total(const Ints& lengths);
// Lengths of a padded layout: none is full, one value is for all, more than `batch` are cut.
Ints padded_lengths(const char* name, const OptInts& given, int64_t batch, int64_t capacity);
// Exactly one length for each of `batch` sequences.
Ints exact_lengths(const char* name, const Ints& given, int64_t batch, int64_t capacity);
// The lengths of which `given` is the running sum, the form of packed layouts.
Ints cumulative_lengths(const char* name, const OptInts& given);

// bool `[batch, width]` that is true past each sequence's length.
Tensor padding(const Ints& lengths, int64_t width);

// Which keys a query may see. With `i` the row of a query, `j` that of a key, and `shift` how much longer the keys are,
//
//     0  what the mask, if there is one, leaves of i - before <= j <= i + after
//     1  what the mask leaves
//     2  j <= i, the triangle from the top left
//     3  j <= i + shift, the triangle from the bottom right
//     4  i + shift - before <= j <= i + shift + after
//
// Modes 2 to 4 take a triangle of 2048 x 2048 as the mask, which says nothing new.
struct Sparsity {
  int64_t mode = 0;
  int64_t before = 0;
  int64_t after = 0;
  bool by_row = true;  // false where position is ignored
};

void check_mask(const OptTensor& mask, const Sparsity& sparsity, int64_t batch, int64_t rows, int64_t columns);
// bool, broadcastable to `[B, N, S, L]`, that is true where a query must not see a key.
Tensor hidden_keys(const OptTensor& mask, const Sparsity& sparsity, const Ints& queries, const Ints& keys,
                   int64_t rows, int64_t columns);
// `tensor` made broadcastable to `[batch, heads, rows, columns]`; what is too much of the last two is cut.
Tensor fit(const char* name, const Tensor& tensor, int64_t batch, int64_t heads, int64_t rows, int64_t columns);

// The dtype to compute in: double stays, everything else becomes float.
Tensor wide(const Tensor& tensor);
// `[B, K, L, D]` operand for `[B, N, S, D]` heads: head `n` reads head `n / (N / K)`, so heads fold into rows.
Tensor fold(const Tensor& by_head, int64_t kv_heads);
// `scale * query @ key^T + bias` as `[B, N, S, L]`, with -inf where `hidden`.
Tensor scores(const Tensor& query, const Tensor& key, double scale, const Tensor& hidden, const OptTensor& bias);
// `softmax(scores) @ value` as `[B, N, S, D]` and the log-sum-exp as `[B, N, S, 1]`. A row that sees no key gives zeros
// and +inf. What lies in `absent` rows of the value (bool `[B, L]`) is not read: it may be NaN.
std::pair<Tensor, Tensor> attend(const Tensor& scores, const Tensor& value, const Tensor& absent);

// The three things that an operator with a plan is asked for; `Make` makes the plan, and with it all checks.
template <auto Make>
struct Planned;
template <typename Plan, typename... Parameters, Plan (*Make)(Parameters...)>
struct Planned<Make> {
  static uint64_t workspace(Parameters... arguments) { return Make(std::move(arguments)...).workspace(); }
  static uint64_t max_workspace(Parameters... arguments) { return Make(std::move(arguments)...).max_workspace(); }
  static void compute(Parameters... arguments) { Make(std::move(arguments)...).compute(); }
};

}  // namespace npusim::attention

// An operator whose checks belong to its first phase: the body makes a plan, which has `workspace`, `compute` and, with
// `ACLNN_PLANNED_MAX`, `max_workspace`.
#define ACLNN_PLANNED(NAME, PLAN, PARAMETERS)                                                                       \
  static PLAN NAME##_plan PARAMETERS;                                                                               \
  static constexpr char NAME##_name[] = "aclnn" #NAME;                                                              \
  ACLNN_PLANNED_PHASE(NAME, GetWorkspaceSize, PARAMETERS, workspace)                                                \
  NPUSIM_SYMBOL(aclnn##NAME, npusim::launch_here)                                                                   \
  static PLAN NAME##_plan PARAMETERS
#define ACLNN_PLANNED_MAX(NAME, PARAMETERS) ACLNN_PLANNED_PHASE(NAME, GetMaxWorkspaceSize, PARAMETERS, max_workspace)
#define ACLNN_PLANNED_PHASE(NAME, PHASE, PARAMETERS, BYTES)                                                         \
  NPUSIM_SYMBOL(aclnn##NAME##PHASE,                                                                                 \
                npusim::Operator<NAME##_name, void PARAMETERS>::prepare<                                            \
                    &npusim::attention::Planned<&NAME##_plan>::compute,                                             \
                    &npusim::attention::Planned<&NAME##_plan>::BYTES>)

// Refuses an optional argument by its name.
#define REFUSE(NAME) npusim::attention::refuse(NAME.has_value(), #NAME)
