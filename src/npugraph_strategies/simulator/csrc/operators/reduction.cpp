// Reductions over dimensions, and running reductions along one.
#include "operator.h"

using namespace npusim;

namespace {

// No dimensions mean all of them; torch's own functions do not all read an empty list so.
at::OptionalIntArrayRef all_if_none(const Ints& dims) {
  return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
}

// The two results of a function of a pair.
void put(const Tensor& first, const Tensor& second, const std::tuple<Tensor, Tensor>& values) {
  npusim::put(first, std::get<0>(values));
  npusim::put(second, std::get<1>(values));
}

}  // namespace

// Sums and products.
ACLNN(ReduceSum, (Tensor self, Ints dims, bool keepdim, aclDataType type, Tensor out)) {
  put(out, at::sum(self, all_if_none(dims), keepdim, scalar_type(type)));
}
ACLNN(ReduceNansum, (Tensor self, Ints dims, bool keepdim, aclDataType type, Tensor out)) {
  put(out, at::nansum(self, all_if_none(dims), keepdim, scalar_type(type)));
}
ACLNN(Mean, (Tensor self, Ints dims, bool keepdim, aclDataType type, Tensor out)) {
  put(out, at::mean(self, all_if_none(dims), keepdim, scalar_type(type)));
}
ACLNN(Prod, (Tensor self, aclDataType type, Tensor out)) { put(out, at::prod(self, scalar_type(type))); }
ACLNN(ProdDim, (Tensor self, int64_t dim, bool keepdim, aclDataType type, Tensor out)) {
  put(out, at::prod(self, dim, keepdim, scalar_type(type)));
}
ACLNN(Trace, (Tensor self, Tensor out)) { put(out, at::trace(self)); }
ACLNN(LogSumExp, (Tensor self, Ints dims, bool keepdim, Tensor out)) { put(out, at::logsumexp(self, dims, keepdim)); }

// Extremes.
ACLNN(Max, (Tensor self, Tensor out)) { put(out, at::max(self)); }
ACLNN(Min, (Tensor self, Tensor out)) { put(out, at::min(self)); }
ACLNN(MaxDim, (Tensor self, int64_t dim, bool keepdim, Tensor out, Tensor indices)) {
  put(out, indices, at::max(self, dim, keepdim));
}
ACLNN(MinDim, (Tensor self, int64_t dim, bool keepdim, Tensor out, Tensor indices)) {
  put(out, indices, at::min(self, dim, keepdim));
}
ACLNN(Amax, (Tensor self, Ints dims, bool keepdim, Tensor out)) { put(out, at::amax(self, dims, keepdim)); }
ACLNN(Amin, (Tensor self, Ints dims, bool keepdim, Tensor out)) { put(out, at::amin(self, dims, keepdim)); }
ACLNN(Aminmax, (Tensor self, Ints dims, bool keepdim, Tensor min, Tensor max)) {
  put(min, at::amin(self, dims, keepdim));
  put(max, at::amax(self, dims, keepdim));
}
ACLNN(AminmaxDim, (Tensor self, int64_t dim, bool keepdim, Tensor min, Tensor max)) {
  put(min, max, at::aminmax(self, dim, keepdim));
}
ACLNN(AminmaxAll, (Tensor self, Tensor min, Tensor max)) { put(min, max, at::aminmax(self)); }
// (torch reads past the end of an expanded dimension, so the operand is made contiguous.)
ACLNN(Median, (Tensor self, Tensor out)) { put(out, at::median(self)); }
ACLNN(NanMedian, (Tensor self, Tensor out)) { put(out, at::nanmedian(self)); }
ACLNN(MedianDim, (Tensor self, int64_t dim, bool keepdim, Tensor out, Tensor indices)) {
  put(out, indices, at::median(self.contiguous(), dim, keepdim));
}
ACLNN(NanMedianDim, (Tensor self, int64_t dim, bool keepdim, Tensor out, Tensor indices)) {
  put(out, indices, at::nanmedian(self.contiguous(), dim, keepdim));
}

// Truth.
ACLNN(All, (Tensor self, Ints dims, bool keepdim, Tensor out)) { put(out, at::all(self, all_if_none(dims), keepdim)); }
ACLNN(Any, (Tensor self, Ints dims, bool keepdim, Tensor out)) { put(out, at::any(self, all_if_none(dims), keepdim)); }

// Moments and norms. (A bare integer for the correction would choose the overload that takes a boolean.)
ACLNN(VarCorrection, (Tensor self, Ints dims, int64_t correction, bool keepdim, Tensor out)) {
  put(out, at::var(self, all_if_none(dims), Scalar(correction), keepdim));
}
ACLNN(VarMean, (Tensor self, Ints dims, int64_t correction, bool keepdim, Tensor var, Tensor mean)) {
  put(var, mean, at::var_mean(self, all_if_none(dims), Scalar(correction), keepdim));
}
ACLNN(Std, (Tensor self, Ints dims, int64_t correction, bool keepdim, Tensor out)) {
  put(out, at::std(self, all_if_none(dims), Scalar(correction), keepdim));
}
ACLNN(StdMeanCorrection, (Tensor self, Ints dims, int64_t correction, bool keepdim, Tensor std, Tensor mean)) {
  put(std, mean, at::std_mean(self, all_if_none(dims), Scalar(correction), keepdim));
}
ACLNN(Norm, (Tensor self, Scalar p, Ints dims, bool keepdim, Tensor out)) {
  put(out, at::linalg_vector_norm(self, p, all_if_none(dims), keepdim));
}
ACLNN(LinalgVectorNorm, (Tensor self, Scalar p, Ints dims, bool keepdim, aclDataType type, Tensor out)) {
  put(out, at::linalg_vector_norm(self, p, all_if_none(dims), keepdim, scalar_type(type)));
}
ACLNN(Renorm, (Tensor self, Scalar p, int64_t dim, Scalar bound, Tensor out)) {
  put(out, at::renorm(self, p, dim, bound));
}
ACLNN(InplaceRenorm, (Tensor self, Scalar p, int64_t dim, Scalar bound)) { put(self, at::renorm(self, p, dim, bound)); }

// Running reductions.
ACLNN(Cumsum, (Tensor self, int64_t dim, aclDataType type, Tensor out)) {
  put(out, at::cumsum(self, dim, scalar_type(type)));
}
ACLNN(Cumprod, (Tensor self, Scalar dim, aclDataType type, Tensor out)) {
  put(out, at::cumprod(self, dim.toLong(), scalar_type(type)));
}
ACLNN(Cummax, (Tensor self, int64_t dim, Tensor out, Tensor indices)) { put(out, indices, at::cummax(self, dim)); }
ACLNN(Cummin, (Tensor self, int64_t dim, Tensor out, Tensor indices)) { put(out, indices, at::cummin(self, dim)); }

// Counts.
ACLNN(Histc, (Tensor self, int64_t bins, Scalar min, Scalar max, Tensor out)) {
  put(out, at::histc(self.to(at::kFloat), bins, min, max));
}
