#include "attention.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace npusim::attention {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kCompressed = 2048;

Tensor column(const Ints& values) { return at::tensor(values, at::kLong).unsqueeze(1); }

std::vector<int64_t> permutation(const std::string& from, const std::string& to) {
  std::vector<int64_t> dims;
  for (const char letter : to) dims.push_back(static_cast<int64_t>(from.find(letter)));
  return dims;
}

Ints bounded(const char* name, Ints lengths, int64_t capacity) {
  for (const int64_t length : lengths)
    require(0 <= length && length <= capacity, name, " must lie in 0 to ", capacity, "; given ", lengths);
  return lengths;
}

Tensor outside_band(const Sparsity& sparsity, const Ints& queries, const Ints& keys, int64_t rows, int64_t columns) {
  Tensor distance = at::arange(columns).unsqueeze(0) - at::arange(rows).unsqueeze(1);
  if (sparsity.mode == 3 || sparsity.mode == 4)
    distance = distance - (column(keys) - column(queries)).unsqueeze(-1).unsqueeze(-1);
  if (sparsity.mode == 2 || sparsity.mode == 3) return distance > 0;
  return at::logical_or(distance > sparsity.after, distance < -sparsity.before);
}

}  // namespace

void refuse(bool given, const char* what) {
  if (given) throw std::invalid_argument(std::string("the simulator does not compute ") + what);
}

Layout::Layout(const std::string& letters) : letters_(letters), order_(letters) {
  static const std::vector<std::string> known{"BSH", "SBH", "BSND", "BNSD", "NBSD", "TND", "NTD"};
  require(std::find(known.begin(), known.end(), letters) != known.end(), "there is no layout '", letters, "'");
  if (order_.back() == 'H') order_.replace(2, 1, "ND");
}

Sizes Layout::sizes(const char* name, const Tensor& tensor, int64_t heads) const {
  const auto rank = static_cast<int64_t>(letters_.size());
  require(tensor.dim() == rank, "a ", letters_, " ", name, " has ", rank, " dimensions; given ", tensor.sizes());
  Sizes sizes;
  for (int64_t axis = 0; axis < rank; ++axis) {
    const int64_t size = tensor.size(axis);
    switch (letters_[axis]) {
      case 'B': sizes.batch = size; break;
      case 'S':
      case 'T': sizes.rows = size; break;
      case 'N': sizes.heads = size; break;
      case 'D': sizes.dim = size; break;
      default:
        require(size % heads == 0, "H of ", name, " must be a multiple of ", heads, " heads; given ", size);
        sizes.heads = heads;
        sizes.dim = size / heads;
    }
  }
  require(sizes.heads == heads, name, " has ", sizes.heads, " heads, ", heads, " were declared");
  return sizes;
}

std::vector<int64_t> Layout::shape(const Sizes& sizes) const {
  std::vector<int64_t> shape;
  for (const char letter : letters_)
    shape.push_back(letter == 'B'   ? sizes.batch
                    : letter == 'N' ? sizes.heads
                    : letter == 'D' ? sizes.dim
                    : letter == 'H' ? sizes.heads * sizes.dim
                                    : sizes.rows);
  return shape;
}

Tensor Layout::padded(const Tensor& tensor, int64_t heads, const Ints& lengths) const {
  if (!packed()) {
    const Tensor parted = letters_.back() == 'H' ? tensor.unflatten(2, {heads, -1}) : tensor;
    return parted.permute(permutation(order_, "BNSD"));
  }
  const Tensor ends = column(lengths).cumsum(0);
  const Tensor rows = ends - column(lengths) + at::arange(longest(lengths));
  const Tensor read = rows.masked_fill(rows >= ends, 0);
  return tensor.permute(permutation(order_, "TND")).index({read}).transpose(1, 2);
}

Tensor Layout::placed(const Tensor& padded, const Ints& lengths) const {
  if (!packed()) {
    const Tensor placed = padded.permute(permutation("BNSD", order_));
    return letters_.back() == 'H' ? placed.flatten(2) : placed;
  }
  const Tensor kept = attention::padding(lengths, padded.size(2)).logical_not();
  return padded.transpose(1, 2).index({kept}).permute(permutation("TND", order_));
}

Ints fill(int64_t batch, int64_t length) { return Ints(static_cast<size_t>(batch), length); }

int64_t longest(const Ints& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

int64_t total(const Ints& lengths) { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

Ints padded_lengths(const char* name, const OptInts& given, int64_t batch, int64_t capacity) {
  if (!given) return fill(batch, capacity);
  const auto count = static_cast<int64_t>(given->size());
  require(count == 1 || count >= batch, name, " must have one value or at least ", batch, " (the batch); given ",
          count);
  return bounded(name, count == 1 ? fill(batch, given->front()) : Ints(given->begin(), given->begin() + batch),
                 capacity);
}

Ints exact_lengths(const char* name, const Ints& given, int64_t batch, int64_t capacity) {
  require(static_cast<int64_t>(given.size()) == batch, name, " must have ", batch, " values, one a sequence; given ",
          given.size());
  return bounded(name, given, capacity);
}

Ints cumulative_lengths(const char* name, const OptInts& given) {
  require(given && !given->empty(), "a packed layout needs ", name);
  Ints lengths(given->size());
  std::adjacent_difference(given->begin(), given->end(), lengths.begin());
  for (const int64_t length : lengths)
    require(length >= 0, name, " must be cumulative: not negative and never decreasing; given ", *given);
  return lengths;
}

Tensor padding(const Ints& lengths, int64_t width) { return at::arange(width) >= column(lengths); }

void check_mask(const OptTensor& mask, const Sparsity& sparsity, int64_t batch, int64_t rows, int64_t columns) {
  const int64_t mode = sparsity.mode;
  refuse(mode > 4, ("sparse mode " + std::to_string(mode)).c_str());
  require(mode >= 0, "the sparse mode must not be negative; given ", mode);
  require(mask || mode != 1, "sparse mode 1 needs a mask");
  if (mode > 1) {
    if (!sparsity.by_row) return;
    require(mask.has_value(), "sparse mode ", mode, " needs the compressed mask of shape [2048, 2048]");
    const bool square = mask->dim() >= 2 && mask->size(-1) == kCompressed && mask->size(-2) == kCompressed;
    require(square && mask->numel() == kCompressed * kCompressed, "sparse mode ", mode,
            " needs the compressed mask of shape [2048, 2048]; given ", mask->sizes());
  } else if (mask) {
    const at::ScalarType type = mask->scalar_type();
    require(type == at::kBool || type == at::kChar || type == at::kByte, "a mask must be bool, int8 or uint8; given ",
            type);
    fit("the mask", *mask, batch, 1, rows, columns);
  }
}

Tensor hidden_keys(const OptTensor& mask, const Sparsity& sparsity, const Ints& queries, const Ints& keys,
                   int64_t rows, int64_t columns) {
  const bool positional = sparsity.by_row && sparsity.mode != 1 && (mask || sparsity.mode > 1);
  Tensor hidden = at::zeros({1, 1, 1, 1}, at::kBool);
  if (mask && sparsity.mode <= 1)
    hidden = fit("the mask", *mask, static_cast<int64_t>(keys.size()), 1, rows, columns).to(at::kBool);
  return positional ? at::logical_or(hidden, outside_band(sparsity, queries, keys, rows, columns)) : hidden;
}

Tensor fit(const char* name, const Tensor& tensor, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  Tensor shaped = tensor;
  // Two dimensions are [S, L], or [B, L] where S is 1; three are [B, S, L].
  if (tensor.dim() == 2) shaped = rows == 1 ? tensor.unsqueeze(1).unsqueeze(1) : tensor.unsqueeze(0).unsqueeze(0);
  if (tensor.dim() == 3) shaped = tensor.unsqueeze(1);
  const auto one_of = [&](int64_t axis, int64_t size) { return shaped.size(axis) == 1 || shaped.size(axis) == size; };
  require(shaped.dim() == 4 && one_of(0, batch) && one_of(1, heads) &&
              (shaped.size(2) == 1 || shaped.size(2) >= rows) && shaped.size(3) >= columns,
          name, " must fit ", Ints{batch, heads, rows, columns}, " (batch, heads, rows, columns); given ",
          tensor.sizes());
  return shaped.slice(2, 0, rows).slice(3, 0, columns);
}

Tensor wide(const Tensor& tensor) { return tensor.scalar_type() == at::kDouble ? tensor : tensor.to(at::kFloat); }

Tensor fold(const Tensor& by_head, int64_t kv_heads) {
  const int64_t group = by_head.size(1) / kv_heads;
  return by_head.reshape({by_head.size(0), kv_heads, group * by_head.size(2), by_head.size(3)});
}

Tensor scores(const Tensor& query, const Tensor& key, double scale, const Tensor& hidden, const OptTensor& bias) {
  const Tensor folded = at::matmul(fold(wide(query), key.size(1)), wide(key).transpose(2, 3));
  Tensor scores = folded.reshape({query.size(0), query.size(1), query.size(2), key.size(2)}) * scale;
  if (bias) scores = scores + wide(*bias);
  return scores.masked_fill(hidden, -kInfinity);
}

std::pair<Tensor, Tensor> attend(const Tensor& scores, const Tensor& value, const Tensor& absent) {
  const Tensor lse = at::logsumexp(scores, {-1}, true);
  const Tensor empty = lse == -kInfinity;
  const Tensor weights = at::exp(scores - lse.masked_fill(empty, 0.0));
  const Tensor present = wide(value).masked_fill(absent.unsqueeze(1).unsqueeze(-1), 0.0);
  const Tensor out = at::matmul(fold(weights, value.size(1)), present);
  return {out.reshape({scores.size(0), scores.size(1), scores.size(2), value.size(3)}),
          lse.masked_fill(empty, kInfinity)};
}

}  // namespace npusim::attention
