// New keys and values put into their slots of a paged cache.
#include "operation.h"

namespace npusim {
namespace {

using Param = atb::infer::ReshapeAndCacheParam;

constexpr int32_t kKeysAndValues = 0, kOneCache = 1;

// Rows [tokens, heads, dim] and the cache [blocks, rows of a block, heads, dim] that they go to.
struct Stream {
  aclTensor rows, cache;
};

void check(const Stream& stream, const aclTensor& slots) {
  const Ints& rows = stream.rows.sizes;
  const Ints& cache = stream.cache.sizes;
  NPUSIM_REQUIRE(stream.rows.type == stream.cache.type, "rows and their cache must be of one type");
  const bool fits = !rows.empty() && cache.size() == rows.size() + 1 &&
                    std::equal(rows.begin() + 1, rows.end(), cache.begin() + 2);
  NPUSIM_REQUIRE(fits, "rows ", at::IntArrayRef(rows), " do not fit their cache ", at::IntArrayRef(cache));
  NPUSIM_REQUIRE(slots.sizes == Ints{rows[0]}, "there must be one slot for each of ", rows[0], " rows; given ",
                 at::IntArrayRef(slots.sizes));
}

void write(const Tensor& rows, const Tensor& cache, const Tensor& slots) {
  const Tensor kept = (slots >= 0).nonzero().flatten();  // a negative slot is padding
  const Tensor places = slots.index_select(0, kept);
  const int64_t capacity = cache.size(0) * cache.size(1);
  const Tensor wrong = places.masked_select(places >= capacity);
  TORCH_CHECK_VALUE(wrong.numel() == 0, "slots must be below ", capacity, "; given ", wrong[0].item<int64_t>());
  cache.flatten(0, 1).index_copy_(0, places, rows.index_select(0, kept));
}

Plan reshape_and_cache(const Param& param, const Call& call) {
  NPUSIM_REQUIRE(param.compressType == 0, "compressType ", param.compressType, " is not simulated");
  NPUSIM_REQUIRE(param.kvCacheCfg == kKeysAndValues || param.kvCacheCfg == kOneCache, "kvCacheCfg ", param.kvCacheCfg,
                 " is not simulated");
  const size_t count = param.kvCacheCfg == kOneCache ? 1 : 2;
  NPUSIM_REQUIRE(call.inputs.size() == 2 * count + 1 && call.outputs.size() == count, 2 * count + 1, " inputs and ",
                 count, " outputs are expected; given ", call.inputs.size(), " and ", call.outputs.size());
  const aclTensor slots = call.inputs.back().device("slotMapping");
  NPUSIM_REQUIRE(slots.type == ACL_INT32 || slots.type == ACL_INT64, "slotMapping must be int32 or int64");
  std::vector<Stream> streams;
  Plan plan;
  plan.touched.push_back(slots);
  for (size_t i = 0; i < count; ++i) {
    streams.push_back({call.inputs[i].device(i ? "value" : "key"),
                       call.inputs[count + i].device(i ? "valueCache" : "keyCache")});
    NPUSIM_REQUIRE(call.outputs[i].device("output").base == streams.back().cache.base,
                   "a cache is written in place: input and output must be the same tensor");
    check(streams.back(), slots);
    plan.touched.insert(plan.touched.end(), {streams.back().rows, streams.back().cache});
  }
  plan.run = [streams = std::move(streams), slots] {
    const Tensor places = view_of(slots).to(at::kLong);
    for (const Stream& stream : streams) write(view_of(stream.rows), view_of(stream.cache), places);
  };
  return plan;
}

}  // namespace
}  // namespace npusim

namespace atb {

template <>
Status CreateOperation(const infer::ReshapeAndCacheParam& param, Operation** operation) {
  return npusim::create("ReshapeAndCache", param, npusim::reshape_and_cache, operation);
}

}  // namespace atb
