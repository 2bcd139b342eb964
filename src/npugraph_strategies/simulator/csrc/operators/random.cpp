// Random numbers.
//
// An operator receives a seed and an offset into the device generator's sequence; what it draws is a function of these
// two, of the distribution, and of the shape. Here it is what torch's CPU generator (MT19937), seeded with a hash of
// both, gives for a contiguous tensor. The numbers differ from those of a device, which uses another algorithm. In a
// capture both come as tensors, which every replay reads again, and to which a number known at capture is added.
#include <ATen/CPUGeneratorImpl.h>

#include "operator.h"

using namespace npusim;

namespace {

at::Generator generator(uint64_t seed, uint64_t offset) {
  // The finaliser of SplitMix64: neighbouring seeds and offsets give unrelated generators.
  uint64_t hash = seed + 0x9e3779b97f4a7c15u * (offset + 1);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return at::make_generator<at::CPUGeneratorImpl>(hash ^ (hash >> 31));
}

at::Generator generator(const Tensor& seed, const Tensor& offset, int64_t more) {
  return generator(seed.item<int64_t>(), offset.item<int64_t>() + more);
}

Tensor like(const Tensor& tensor) { return at::empty(tensor.sizes(), tensor.options()); }

// Whether each element is kept, eight elements a byte, the first in the lowest bit.
Tensor bits() { return at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte); }

Tensor packed_mask(int64_t bytes, double dropped, at::Generator random) {
  const Tensor kept = at::empty({bytes, 8}, at::kByte).bernoulli_(1 - dropped, random);
  return kept.mul(bits()).sum({1}, false, at::kByte);
}

Tensor unpacked_mask(const Tensor& mask, at::IntArrayRef shape) {
  const Tensor all = mask.flatten().unsqueeze(1).bitwise_and(bits()).ne(0).flatten();
  return all.slice(0, 0, c10::multiply_integers(shape)).view(shape);
}

Tensor drop(const Tensor& self, const Tensor& mask, double dropped) {
  const Tensor kept = unpacked_mask(mask, self.sizes());
  return dropped == 1 ? at::zeros_like(self) : at::where(kept, self / (1 - dropped), at::zeros({}, self.options()));
}

void uniform(const Tensor& self, double from, double to, at::Generator random) {
  put(self, like(self).uniform_(from, to, std::move(random)));
}

void normal(const Tensor& self, double mean, double std, at::Generator random) {
  put(self, like(self).normal_(mean, std, std::move(random)));
}

void integers(const Tensor& self, int64_t from, int64_t to, at::Generator random) {
  put(self, like(self).random_(from, to, std::move(random)));
}

void all_integers(const Tensor& self, at::Generator random) { put(self, like(self).random_(std::move(random))); }

void exponential(const Tensor& self, double rate, at::Generator random) {
  put(self, like(self).exponential_(rate, std::move(random)));
}

void samples(const Tensor& self, int64_t count, bool replacement, const Tensor& out, at::Generator random) {
  put(out, at::multinomial(self, count, replacement, std::move(random)));
}

void dropout(const Tensor& self, double dropped, const Tensor& out, const Tensor& mask, at::Generator random) {
  put(mask, packed_mask(mask.numel(), dropped, std::move(random)));
  put(out, drop(self, mask, dropped));
}

}  // namespace

// State as numbers.
ACLNN(InplaceUniform, (Tensor self, double from, double to, uint64_t seed, uint64_t offset)) {
  uniform(self, from, to, generator(seed, offset));
}
ACLNN(InplaceNormal, (Tensor self, float mean, float std, int64_t seed, int64_t offset)) {
  normal(self, mean, std, generator(seed, offset));
}
ACLNN(NormalFloatFloat, (float mean, float std, int64_t seed, int64_t offset, Tensor out)) {
  normal(out, mean, std, generator(seed, offset));
}
ACLNN(NormalFloatTensor, (float mean, Tensor std, int64_t seed, int64_t offset, Tensor out)) {
  put(out, at::normal(mean, std, generator(seed, offset)));
}
ACLNN(NormalTensorFloat, (Tensor mean, float std, int64_t seed, int64_t offset, Tensor out)) {
  put(out, at::normal(mean, std, generator(seed, offset)));
}
ACLNN(NormalTensorTensor, (Tensor mean, Tensor std, int64_t seed, int64_t offset, Tensor out)) {
  put(out, at::normal(mean, std, generator(seed, offset)));
}
ACLNN(InplaceRandom, (Tensor self, int64_t from, int64_t to, int64_t seed, int64_t offset)) {
  integers(self, from, to, generator(seed, offset));
}
ACLNN(InplaceRandomWithoutFromTo, (Tensor self, int64_t seed, int64_t offset)) {
  all_integers(self, generator(seed, offset));
}
ACLNN(InplaceBernoulli, (Tensor self, Scalar probability, int64_t seed, int64_t offset)) {
  put(self, like(self).bernoulli_(probability.toDouble(), generator(seed, offset)));
}
ACLNN(InplaceBernoulliTensor, (Tensor self, Tensor probability, int64_t seed, int64_t offset)) {
  put(self, like(self).bernoulli_(probability, generator(seed, offset)));
}
ACLNN(SimThreadExponential, (Tensor self, int64_t, float rate, int64_t seed, int64_t offset)) {
  exponential(self, rate, generator(seed, offset));
}
ACLNN(Multinomial, (Tensor self, int64_t count, bool replacement, int64_t seed, int64_t offset, Tensor out)) {
  samples(self, count, replacement, out, generator(seed, offset));
}
ACLNN(Randperm, (int64_t n, int64_t seed, int64_t offset, Tensor out)) {
  put(out, at::randperm(n, generator(seed, offset), out.options()));
}
ACLNN(DropoutGenMask, (Ints, double dropped, int64_t seed, int64_t offset, Tensor mask)) {
  put(mask, packed_mask(mask.numel(), dropped, generator(seed, offset)));
}
ACLNN(DropoutGenMaskV2, (Ints, double dropped, int64_t seed, int64_t offset, aclDataType, Tensor mask)) {
  put(mask, packed_mask(mask.numel(), dropped, generator(seed, offset)));
}
ACLNN(DropoutV3,
      (Tensor self, OptTensor, double dropped, int64_t seed, int64_t offset, Tensor out, Tensor mask)) {
  dropout(self, dropped, out, mask, generator(seed, offset));
}

// State in device memory.
ACLNN(InplaceUniformTensor, (Tensor self, double from, double to, Tensor seed, Tensor offset, int64_t more)) {
  uniform(self, from, to, generator(seed, offset, more));
}
ACLNN(InplaceNormalTensor, (Tensor self, float mean, float std, Tensor seed, Tensor offset, int64_t more)) {
  normal(self, mean, std, generator(seed, offset, more));
}
ACLNN(InplaceRandomTensor, (Tensor self, int64_t from, int64_t to, Tensor seed, Tensor offset, int64_t more)) {
  integers(self, from, to, generator(seed, offset, more));
}
ACLNN(InplaceRandomWithoutFromToTensor, (Tensor self, Tensor seed, Tensor offset, int64_t more)) {
  all_integers(self, generator(seed, offset, more));
}
ACLNN(StatelessExponentialTensor, (Tensor self, float rate, Tensor seed, Tensor offset, int64_t more)) {
  exponential(self, rate, generator(seed, offset, more));
}
ACLNN(MultinomialTensor,
      (Tensor self, int64_t count, bool replacement, Tensor seed, Tensor offset, int64_t more, Tensor out)) {
  samples(self, count, replacement, out, generator(seed, offset, more));
}
ACLNN(DropoutGenMaskV2Tensor,
      (Ints, double dropped, Tensor seed, Tensor offset, int64_t more, aclDataType, Tensor mask)) {
  put(mask, packed_mask(mask.numel(), dropped, generator(seed, offset, more)));
}
ACLNN(DropoutV3Tensor,
      (Tensor self, OptTensor, double dropped, Tensor seed, Tensor offset, int64_t more, Tensor out, Tensor mask)) {
  dropout(self, dropped, out, mask, generator(seed, offset, more));
}

// No state: the mask is given.
ACLNN(DropoutDoMask, (Tensor self, Tensor mask, double dropped, Tensor out)) { put(out, drop(self, mask, dropped)); }
ACLNN(DropoutV3Grad, (Tensor grad, Tensor mask, double dropped, Tensor out)) { put(out, drop(grad, mask, dropped)); }
ACLNN(MaskedScale, (Tensor self, Tensor mask, float scale, Tensor out)) { put(out, self * mask * scale); }
