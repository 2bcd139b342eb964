// Reading and writing by index, by mask, and by embedding.
#include "dynamic_shape.h"

using namespace npusim;

namespace {

// A dimension that is not indexed arrives as a tensor without elements and with the type of the indexed tensor. Where
// that is the type of an index too, an index without elements is told from it by standing among its like.
c10::List<std::optional<Tensor>> positions(const Tensors& indices) {
  bool reads = false;
  for (const Tensor& one : indices) reads |= one.numel() > 0;
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& one : indices) {
    const bool index = one.scalar_type() == at::kLong || one.scalar_type() == at::kInt;
    list.push_back(one.numel() || (index && !reads) ? std::optional<Tensor>(one) : std::nullopt);
  }
  return list;
}

// How torch_npu numbers the reductions of a scatter.
void scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, int64_t reduce) {
  switch (reduce) {
    case 0: self.scatter_(dim, index, source); return;
    case 1: self.scatter_add_(dim, index, source); return;
    case 2: self.scatter_reduce_(dim, index, source, "prod"); return;
    case 3: self.scatter_reduce_(dim, index, source, "amax"); return;
    case 4: self.scatter_reduce_(dim, index, source, "amin"); return;
    default: TORCH_CHECK(false, "the simulator has no scatter reduction number ", reduce);
  }
}
void scatter(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value, int64_t reduce) {
  scatter(self, dim, index, at::full(index.sizes(), value, self.options()), reduce);
}

}  // namespace

ACLNN(Embedding, (Tensor weight, Tensor indices, Tensor out)) { put(out, at::embedding(weight, indices)); }
ACLNN(EmbeddingDenseBackward, (Tensor grad, Tensor indices, uint64_t rows, uint64_t padding, bool by_frequency,
                               Tensor out)) {
  put(out, at::embedding_dense_backward(grad, indices, static_cast<int64_t>(rows), static_cast<int64_t>(padding),
                                        by_frequency));
}
ACLNN(EmbeddingRenorm, (Tensor self, Tensor indices, double max_norm, double norm_type)) {
  at::embedding_renorm_(self, indices, max_norm, norm_type);
}
ACLNN(EmbeddingBag, (Tensor weight, Tensor indices, Tensor offsets, bool by_frequency, int64_t mode, bool sparse,
                     OptTensor per_sample, bool include_last, int64_t padding, Tensor out, Tensor offset_to_bag,
                     Tensor bag_size, Tensor max_indices)) {
  const auto [value, bags, sizes, maxima] = at::_embedding_bag(weight, indices, offsets, by_frequency, mode, sparse,
                                                               per_sample, include_last, padding);
  put(out, value);
  if (bags.sizes() == offset_to_bag.sizes()) put(offset_to_bag, bags);
  if (sizes.sizes() == bag_size.sizes()) put(bag_size, sizes);
  if (maxima.sizes() == max_indices.sizes()) put(max_indices, maxima);
}

ACLNN(Index, (Tensor self, Tensors indices, Tensor out)) {
  if (out.numel()) put(out, at::index(self, positions(indices)));
}
ACLNN(IndexPutImpl, (Tensor self, Tensors indices, Tensor values, bool accumulate, bool)) {
  if (values.numel()) self.index_put_(positions(indices), values, accumulate);
}
ACLNN(IndexSelect, (Tensor self, int64_t dim, Tensor index, Tensor out)) {
  put(out, at::index_select(self, dim, index));
}
ACLNN(IndexAdd, (Tensor self, int64_t dim, Tensor index, Tensor source, Scalar alpha, Tensor out)) {
  put(out, at::index_add(self, dim, index, source, alpha));
}
ACLNN(IndexCopy, (Tensor self, int64_t dim, Tensor index, Tensor source, Tensor out)) {
  put(out, at::index_copy(self, dim, index, source));
}
ACLNN(InplaceIndexCopy, (Tensor self, int64_t dim, Tensor index, Tensor source)) {
  self.index_copy_(dim, index, source);
}
ACLNN(IndexFill, (Tensor self, int64_t dim, Tensor index, Scalar value, Tensor out)) {
  put(out, at::index_fill(self, dim, index, value));
}
ACLNN(InplaceIndexFill, (Tensor self, int64_t dim, Tensor index, Scalar value)) {
  self.index_fill_(dim, index, value);
}

ACLNN(Gather, (Tensor self, int64_t dim, Tensor index, Tensor out)) { put(out, at::gather(self, dim, index)); }
ACLNN(Scatter, (Tensor self, int64_t dim, Tensor index, Tensor source, int64_t reduce, Tensor out)) {
  put(out, self);
  scatter(out, dim, index, source, reduce);
}
ACLNN(InplaceScatter, (Tensor self, int64_t dim, Tensor index, Tensor source, int64_t reduce)) {
  scatter(self, dim, index, source, reduce);
}
ACLNN(ScatterValue, (Tensor self, int64_t dim, Tensor index, Scalar value, int64_t reduce, Tensor out)) {
  put(out, self);
  scatter(out, dim, index, value, reduce);
}
ACLNN(InplaceScatterValue, (Tensor self, int64_t dim, Tensor index, Scalar value, int64_t reduce)) {
  scatter(self, dim, index, value, reduce);
}
ACLNN(ScatterAdd, (Tensor self, int64_t dim, Tensor index, Tensor source, Tensor out)) {
  put(out, at::scatter_add(self, dim, index, source));
}
ACLNN(InplaceScatterUpdate, (Tensor self, Tensor index, Tensor updates, int64_t dim)) {
  // Row b of the batch takes its updates from position index[b] of the given dimension on.
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  const Tensor starts = index.to(at::kLong).contiguous();
  for (int64_t b = 0; b < index.numel(); ++b)
    self[b].narrow(axis - 1, starts.data_ptr<int64_t>()[b], updates.size(axis)).copy_(updates[b]);
}
ACLNN(ScatterNdUpdate, (Tensor self, Tensor indices, Tensor updates)) {
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& one : indices.to(at::kLong).unbind(-1)) list.push_back(one);
  self.index_put_(list, updates);
}
ACLNN(Take, (Tensor self, Tensor index, Tensor out)) { put(out, at::take(self, index)); }
ACLNN(InplacePut, (Tensor self, Tensor index, Tensor source, bool accumulate)) {
  self.put_(index, source, accumulate);
}

ACLNN(InplaceMaskedFillScalar, (Tensor self, Tensor mask, Scalar value)) {
  self.masked_fill_(mask.to(at::kBool), value);
}
ACLNN(InplaceMaskedFillTensor, (Tensor self, Tensor mask, Tensor value)) {
  self.masked_fill_(mask.to(at::kBool), value.reshape({}));
}
ACLNN(InplaceMaskedScatter, (Tensor self, Tensor mask, Tensor source)) {
  self.masked_scatter_(mask.to(at::kBool), source);
}
ACLNN(MaskedSelect, (Tensor self, Tensor mask, DynamicTensor out)) {
  out.put(at::masked_select(self, mask.to(at::kBool)));
}
ACLNN(Nonzero, (Tensor self, DynamicTensor out)) { out.put(at::nonzero(self)); }
ACLNN(NonzeroV2, (Tensor self, DynamicTensor out)) { out.put(at::nonzero(self).t()); }

ACLNN(OneHot, (Tensor self, int64_t classes, Tensor on, Tensor off, int64_t axis, Tensor out)) {
  const int64_t last = axis < 0 ? axis + self.dim() + 1 : axis;
  const Tensor kinds = at::arange(classes, self.options());
  put(out, at::where(self.unsqueeze(-1) == kinds, on.reshape({}), off.reshape({})).movedim(-1, last));
}
