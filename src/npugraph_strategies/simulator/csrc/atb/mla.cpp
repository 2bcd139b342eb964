// Multi-head latent attention over a paged latent cache; torch_npu looks this C interface up by name.
//
// A key is the latent row `ctKV` next to the rotary row `kRope`, and the value is the latent row itself.
#include <algorithm>
#include <memory>

#include "attention.h"
#include "operation.h"

namespace npusim {
namespace {

using Kind = AttentionMask::Kind;

// The numbers that torch_npu gives for the names of its arguments.
constexpr int32_t kMaskUndefined = 0, kMaskSpec = 1, kMaskFree = 2;
constexpr int32_t kCalcUndefined = 0, kCalcRing = 2;
constexpr int32_t kCacheKropeCtkv = 1;

struct Settings {
  int64_t heads;
  double scale;
  int64_t kv_heads;
  int32_t mask_type, calc_type, cache_mode;
};

struct Arguments {
  aclTensor q_nope, q_rope, latents, ropes, table, out;
  std::optional<aclTensor> mask, lse;
  Ints lengths, queries;
  Settings settings;
  Kind kind;
};

void require_covered(const Settings& given) {
  check_heads(given.heads, given.kv_heads, given.scale);
  NPUSIM_REQUIRE(given.mask_type >= kMaskUndefined && given.mask_type <= kMaskFree, "maskType ", given.mask_type,
                 " is not simulated");
  NPUSIM_REQUIRE(given.calc_type >= kCalcUndefined && given.calc_type <= kCalcRing, "calcType ", given.calc_type,
                 " is not simulated");
  NPUSIM_REQUIRE(given.cache_mode == kCacheKropeCtkv, "cacheMode ", given.cache_mode,
                 " is not simulated: only krope_ctkv is");
}

// A mask that is given is applied; without one, speculative queries are causal, and so are those of "mask free".
Kind mask_kind(int32_t mask_type, bool given) {
  if (mask_type == kMaskFree) return Kind::kCausal;
  if (given) return Kind::kGiven;
  return mask_type == kMaskSpec ? Kind::kCausal : Kind::kNone;
}

void check(const Arguments& given) {
  const int64_t heads = given.settings.heads, kv_heads = given.settings.kv_heads;
  NPUSIM_REQUIRE(given.q_nope.sizes.size() == 3 && given.q_rope.sizes.size() == 3 && given.latents.sizes.size() == 4 &&
                     given.table.sizes.size() == 2,
                 "queries, caches and table have 3, 4 and 2 dimensions");
  const int64_t tokens = given.q_nope.sizes[0], latent = given.q_nope.sizes[2], rope = given.q_rope.sizes[2];
  const int64_t blocks = given.latents.sizes[0], rows = given.latents.sizes[1];
  const auto expect = [](const char* name, const aclTensor& tensor, const Ints& sizes, aclDataType type) {
    NPUSIM_REQUIRE(tensor.sizes == sizes && tensor.type == type, name, " must be ", at::IntArrayRef(sizes), " of ",
                   scalar_type(type), "; given ", at::IntArrayRef(tensor.sizes), " of ", scalar_type(tensor.type));
  };
  const aclDataType type = given.q_nope.type;
  expect("qNope", given.q_nope, {tokens, heads, latent}, type);
  expect("qRope", given.q_rope, {tokens, heads, rope}, type);
  expect("ctKV", given.latents, {blocks, rows, kv_heads, latent}, type);
  expect("kRope", given.ropes, {blocks, rows, kv_heads, rope}, type);
  expect("attenOut", given.out, {tokens, heads, latent}, type);
  if (given.lse) expect("lse", *given.lse, {tokens, heads, 1}, given.lse->type);
  const int64_t batch = given.table.sizes[0];
  expect("blockTables", given.table, {batch, given.table.sizes[1]}, ACL_INT32);
  NPUSIM_REQUIRE(static_cast<int64_t>(given.lengths.size()) == batch, "contextLens must have ", batch,
                 " values, one for each row of blockTables; given ", given.lengths.size());
  check_lengths(given.lengths, given.queries, given.table.sizes[1] * rows, tokens);
}

void compute(const Arguments& given) {
  const Tensor latents = view_of(given.latents), table = view_of(given.table);
  check_table(table, given.lengths, latents);
  const Tensor values = gather_blocks(latents, table, given.lengths);
  const Tensor keys = at::cat({values, gather_blocks(view_of(given.ropes), table, given.lengths)}, -1);
  const Tensor query = at::cat({view_of(given.q_nope), view_of(given.q_rope)}, -1);
  const AttentionMask mask(given.kind, given.mask ? OptTensor(view_of(*given.mask)) : std::nullopt, given.queries,
                           given.lengths);
  const Attended attended =
      attend(query, keys, values, given.settings.scale, mask, given.queries, given.lengths);
  put(view_of(given.out), attended.out);
  if (given.lse) put(view_of(*given.lse), attended.lse);
}

Plan plan_of(Arguments given) {
  check(given);
  Plan plan;
  plan.workspace =
      attention_workspace(given.lengths, given.latents.sizes[1], given.settings.heads, given.q_nope.sizes[2]);
  plan.touched = {given.q_nope, given.q_rope, given.latents, given.ropes, given.table, given.out};
  if (given.mask) plan.touched.push_back(*given.mask);
  if (given.lse) plan.touched.push_back(*given.lse);
  plan.run = [given = std::move(given)] { compute(given); };
  return plan;
}

// What torch_npu passes as a tensor that it does not want filled: null, or one with no elements.
std::optional<aclTensor> wanted(const aclTensor* tensor, const char* name) {
  if (!tensor || std::count(tensor->sizes.begin(), tensor->sizes.end(), 0)) return std::nullopt;
  return Operand(tensor).device(name);
}

}  // namespace
}  // namespace npusim

NPUSIM_EXPORT int AtbMLAGetWorkspaceSize(const aclTensor* q_nope, const aclTensor* q_rope, const aclTensor* latents,
                                         const aclTensor* ropes, const aclTensor* table, const aclTensor* lengths,
                                         const aclTensor* mask, const aclTensor* queries, const aclTensor* qk_descale,
                                         const aclTensor* pv_descale, int64_t heads, float scale, int64_t kv_heads,
                                         int32_t mask_type, int32_t calc_type, int32_t cache_mode,
                                         const aclTensor* out, const aclTensor* lse, uint64_t* size,
                                         atb::Operation** operation, const atb::Context* context) {
  using namespace npusim;
  if (!size || !operation) return fail(kNullArgument, "ATB MLA: no place for the size or the operation");
  // torch_npu keeps operations and offers one that it has: what it was before does not matter.
  std::unique_ptr<PlannedOperation> made(*operation ? nullptr : new PlannedOperation("MLA"));
  auto* planned = made ? made.get() : static_cast<PlannedOperation*>(*operation);
  const atb::Status status = planned->prepare(
      [&] {
        NPUSIM_REQUIRE(!qk_descale && !pv_descale, "qkDescale and pvDescale are not simulated");
        Arguments given;
        given.settings = {heads, scale, kv_heads, mask_type, calc_type, cache_mode};
        require_covered(given.settings);
        given.q_nope = Operand(q_nope).device("qNope");
        given.q_rope = Operand(q_rope).device("qRope");
        given.latents = Operand(latents).device("ctKV");
        given.ropes = Operand(ropes).device("kRope");
        given.table = Operand(table).device("blockTables");
        given.lengths = Operand(lengths).values("contextLens");
        given.queries = queries ? Operand(queries).values("qSeqLen") : Ints(given.lengths.size(), 1);
        if (mask) given.mask = Operand(mask).device("mask");
        given.kind = mask_kind(mask_type, mask != nullptr);
        given.out = Operand(out).device("attenOut");
        given.lse = wanted(lse, "lse");
        return plan_of(std::move(given));
      },
      *size, context);
  if (status == 0 && made) *operation = made.release();
  return status;
}

NPUSIM_EXPORT int AtbMLA(void* workspace, uint64_t size, atb::Operation* operation, const atb::Context* context) {
  if (!operation) return npusim::fail(npusim::kNullArgument, "ATB MLA: executed without an operation");
  return static_cast<npusim::PlannedOperation*>(operation)->launch(workspace, size, context);
}
