// Order, search, and what is unique.
#include "dynamic_shape.h"

using namespace npusim;

namespace {

void put_pair(const Tensor& values, const Tensor& indices, const std::tuple<Tensor, Tensor>& pair) {
  put(values, std::get<0>(pair));
  put(indices, std::get<1>(pair));
}

}  // namespace

ACLNN(Sort, (Tensor self, bool stable, int64_t dim, bool descending, Tensor values, Tensor indices)) {
  put_pair(values, indices, at::sort(self, stable, dim, descending));
}
ACLNN(TopkV2, (Tensor self, int64_t k, int64_t dim, bool largest, bool sorted, int64_t, Tensor values,
               Tensor indices)) {
  put_pair(values, indices, at::topk(self, k, dim, largest, sorted));
}
ACLNN(Kthvalue, (Tensor self, int64_t k, int64_t dim, bool keepdim, Tensor values, Tensor indices)) {
  put_pair(values, indices, at::kthvalue(self, k, dim, keepdim));
}
ACLNN(ArgMax, (Tensor self, int64_t dim, bool keepdim, Tensor out)) { put(out, at::argmax(self, dim, keepdim)); }
ACLNN(ArgMin, (Tensor self, int64_t dim, bool keepdim, Tensor out)) { put(out, at::argmin(self, dim, keepdim)); }

ACLNN(Unique, (Tensor self, bool sorted, bool return_inverse, DynamicTensor values, Tensor inverse)) {
  const auto [unique, positions] = at::_unique(self, sorted, return_inverse);
  values.put(unique);
  if (return_inverse) put(inverse, positions);
}
ACLNN(Unique2, (Tensor self, bool sorted, bool return_inverse, bool return_counts, DynamicTensor values,
                Tensor inverse, DynamicTensor counts)) {
  const auto [unique, positions, numbers] = at::_unique2(self, sorted, return_inverse, return_counts);
  values.put(unique);
  if (return_inverse) put(inverse, positions);
  if (return_counts) counts.put(numbers);
}
ACLNN(UniqueConsecutive, (Tensor self, bool return_inverse, bool return_counts, int64_t dim, DynamicTensor values,
                          DynamicTensor inverse, DynamicTensor counts)) {
  // One thousand stands for "no dimension".
  const auto [unique, positions, numbers] = at::unique_consecutive(
      self, return_inverse, return_counts, dim == 1000 ? std::nullopt : std::optional<int64_t>(dim));
  values.put(unique);
  if (return_inverse) inverse.put(positions);
  if (return_counts) counts.put(numbers);
}
ACLNN(UniqueDim, (Tensor self, bool sorted, bool return_inverse, int64_t dim, DynamicTensor values, Tensor inverse,
                  DynamicTensor counts)) {
  const auto [unique, positions, numbers] = at::unique_dim(self, dim, sorted, true, true);
  values.put(unique);
  if (return_inverse) put(inverse, positions);
  counts.put(numbers);
}

ACLNN(SearchSorted, (Tensor sequence, Tensor self, bool int32, bool right, OptTensor sorter, Tensor out)) {
  put(out, at::searchsorted(sequence.contiguous(), self.contiguous(), int32, right, std::nullopt, sorter));
}
ACLNN(SearchSorteds, (Tensor sequence, Scalar self, bool int32, bool right, OptTensor sorter, Tensor out)) {
  put(out, at::searchsorted(sequence.contiguous(), self, int32, right, std::nullopt, sorter).reshape(out.sizes()));
}
ACLNN(Bincount, (Tensor self, OptTensor weights, int64_t minlength, Tensor out)) {
  put(out, at::bincount(self, weights, minlength));
}
