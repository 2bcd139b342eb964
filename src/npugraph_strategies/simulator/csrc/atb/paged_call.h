// One call of attention over a paged cache: what the operations that do that have in common.
#pragma once

#include <optional>

#include "attention.h"
#include "operation.h"

namespace npusim {

// The inputs of a call, taken one after the other.
class Inputs {
 public:
  explicit Inputs(const Call& call) : call_(call) {}
  const Operand& take();
  void finish() const;  // throws if inputs are left

 private:
  const Call& call_;
  size_t next_ = 0;
};

// The single output of a call; throws if there is another number.
const aclTensor& only_output(const Call& call);

struct PagedCall {
  aclTensor query, keys, table, out;
  std::optional<aclTensor> values;  // none: the first `value_size` columns of the keys are the values
  std::optional<aclTensor> mask;
  Ints lengths, queries;  // cached tokens and queries of each sequence
  int64_t heads = 0, kv_heads = 0, value_size = 0;
  double scale = 1;
  AttentionMask::Kind mask_kind = AttentionMask::Kind::kNone;

  // The plan of a call that makes sense; throws if it does not.
  static Plan plan(PagedCall call);

 private:
  void check() const;
  void run() const;
};

}  // namespace npusim
