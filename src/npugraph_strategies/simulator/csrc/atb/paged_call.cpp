#include "paged_call.h"

namespace npusim {

const Operand& Inputs::take() {
  NPUSIM_REQUIRE(next_ < call_.inputs.size(), call_.inputs.size(), " inputs are fewer than these parameters ask for");
  return call_.inputs[next_++];
}

void Inputs::finish() const {
  NPUSIM_REQUIRE(next_ == call_.inputs.size(), next_, " inputs are expected; given ", call_.inputs.size());
}

const aclTensor& only_output(const Call& call) {
  NPUSIM_REQUIRE(call.outputs.size() == 1, "one output is expected; given ", call.outputs.size());
  return call.outputs[0].device("the output");
}

void PagedCall::check() const {
  const auto batch = static_cast<int64_t>(lengths.size());
  check_heads(heads, kv_heads, scale);
  NPUSIM_REQUIRE(query.sizes.size() == 3 && keys.sizes.size() == 4 && table.sizes.size() == 2,
                 "query, caches and table have 3, 4 and 2 dimensions; given ", query.sizes.size(), ", ",
                 keys.sizes.size(), ", ", table.sizes.size());
  NPUSIM_REQUIRE(query.sizes[1] == heads, "the query has ", query.sizes[1], " heads, ", heads, " were declared");
  const auto covers = [this](const aclTensor& cache) {
    return cache.type == query.type && cache.sizes.size() == 4 && cache.sizes[0] == keys.sizes[0] &&
           cache.sizes[1] == keys.sizes[1] && cache.sizes[2] == kv_heads;
  };
  NPUSIM_REQUIRE(covers(keys) && keys.sizes[3] == query.sizes[2], "the keys' cache must be [blocks, rows, ", kv_heads,
                 ", ", query.sizes[2], "] of the query's type; given ", at::IntArrayRef(keys.sizes));
  NPUSIM_REQUIRE(!values || covers(*values), "the values' cache must be [", keys.sizes[0], ", ", keys.sizes[1], ", ",
                 kv_heads, ", D] of the query's type; given ", at::IntArrayRef(values ? values->sizes : Ints()));
  NPUSIM_REQUIRE(values || value_size <= keys.sizes[3], "values of ", value_size, " columns are wider than keys of ",
                 keys.sizes[3]);
  NPUSIM_REQUIRE(table.type == ACL_INT32 && table.sizes[0] >= batch, "the block table must be int32 with ", batch,
                 " rows; given ", scalar_type(table.type), " and ", table.sizes[0]);
  const int64_t tokens = query.sizes[0];
  check_lengths(lengths, queries, table.sizes[1] * keys.sizes[1], tokens);
  const Ints expected{tokens, heads, values ? values->sizes[3] : value_size};
  NPUSIM_REQUIRE(out.sizes == expected && out.type == query.type, "the output must be ", at::IntArrayRef(expected),
                 " of the query's type; given ", at::IntArrayRef(out.sizes));
}

void PagedCall::run() const {
  if (lengths.empty()) return;
  const Tensor cache = view_of(keys), blocks = view_of(table);
  check_table(blocks, lengths, cache);
  const Tensor key = gather_blocks(cache, blocks, lengths);
  const Tensor value = values ? gather_blocks(view_of(*values), blocks, lengths) : key.slice(3, 0, value_size);
  const AttentionMask seen(mask_kind, mask ? OptTensor(view_of(*mask)) : std::nullopt, queries, lengths);
  put(view_of(out), attend(view_of(query), key, value, scale, seen, queries, lengths).out);
}

Plan PagedCall::plan(PagedCall call) {
  call.check();
  Plan plan;
  plan.workspace = attention_workspace(call.lengths, call.keys.sizes[1], call.heads, call.query.sizes[2]);
  plan.touched = {call.query, call.keys, call.table, call.out};
  if (call.values) plan.touched.push_back(*call.values);
  if (call.mask) plan.touched.push_back(*call.mask);
  plan.run = [call = std::move(call)] { call.run(); };
  return plan;
}

}  // namespace npusim
