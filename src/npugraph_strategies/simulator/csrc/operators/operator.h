// How an operator is written: one line names it and its arguments, the body computes it with torch's CPU library.
//
//     ACLNN(Add, (Tensor self, Tensor other, Scalar alpha, Tensor out)) { put(out, at::add(self, other, alpha)); }
//
// defines both symbols that torch_npu looks up, `aclnnAddGetWorkspaceSize(self, other, alpha, out, &size, &executor)`
// and `aclnnAdd(workspace, size, executor, stream)`. The C signature follows from the types of the parameters:
//
//     Tensor                const aclTensor*        must not be null
//     OptTensor             const aclTensor*        may be null
//     Tensors               const aclTensorList*    null is an empty list
//     Scalar                const aclScalar*
//     OptScalar             const aclScalar*        may be null
//     Scalars               const aclScalarList*
//     Ints, Floats, Bools   const acl…Array*        null is an empty list
//     OptInts               const aclIntArray*      may be null
//     Text                  const char*             null is empty
//     int64_t, double, float, bool, int8_t, int32_t and so on: themselves
//
// The first phase copies descriptors on the caller's thread; the body runs on the device thread, with every tensor as
// an ordinary CPU tensor over device memory. Results are written with `put`, which checks shapes and casts.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "../core/launch.h"

namespace npusim {

using at::Scalar;
using at::Tensor;
using OptTensor = std::optional<at::Tensor>;
using OptScalar = std::optional<at::Scalar>;
using Tensors = std::vector<at::Tensor>;
using Scalars = std::vector<at::Scalar>;
using Ints = std::vector<int64_t>;
using OptInts = std::optional<Ints>;
using Floats = std::vector<double>;
using Bools = std::vector<bool>;
using Text = std::string;

NPUSIM_SHARED at::ScalarType scalar_type(aclDataType type);          // throws for a type that torch's CPU library lacks
NPUSIM_SHARED at::Tensor view_of(const aclTensor& descriptor);       // a CPU tensor over the descriptor's memory
NPUSIM_SHARED Extent extent_of(const aclTensor& descriptor);         // the bytes its elements span
NPUSIM_SHARED at::Scalar scalar_of(const aclScalar& scalar);
NPUSIM_SHARED void put(const at::Tensor& out, const at::Tensor& value);  // out.copy_(value), after comparing shapes

// How one parameter crosses: its C type, what is kept between the phases, and what the body receives.
template <typename T>
struct Argument {
  using Abi = T;
  using Kept = T;
  static Kept keep(Abi value, std::vector<Extent>&) { return value; }
  static T give(const Kept& kept) { return kept; }
};

template <>
struct Argument<Tensor> {
  using Abi = const aclTensor*;
  using Kept = aclTensor;
  static Kept keep(Abi tensor, std::vector<Extent>& extents) {
    if (!tensor) throw std::invalid_argument("a tensor that must be given is null");
    extents.push_back(extent_of(*tensor));
    return *tensor;
  }
  static Tensor give(const Kept& kept) { return view_of(kept); }
};

template <>
struct Argument<OptTensor> {
  using Abi = const aclTensor*;
  using Kept = std::optional<aclTensor>;
  static Kept keep(Abi tensor, std::vector<Extent>& extents) {
    if (!tensor) return std::nullopt;
    extents.push_back(extent_of(*tensor));
    return *tensor;
  }
  static OptTensor give(const Kept& kept) { return kept ? OptTensor(view_of(*kept)) : std::nullopt; }
};

template <>
struct Argument<Tensors> {
  using Abi = const aclTensorList*;
  using Kept = std::vector<aclTensor>;
  static Kept keep(Abi list, std::vector<Extent>& extents) {
    Kept kept;
    if (!list) return kept;
    for (const aclTensor* tensor : list->tensors) {
      // An element may be null (an undefined tensor of a list): it is kept as an empty descriptor.
      if (tensor) extents.push_back(extent_of(*tensor));
      kept.push_back(tensor ? *tensor : aclTensor{});
    }
    return kept;
  }
  static Tensors give(const Kept& kept) {
    Tensors tensors;
    for (const aclTensor& one : kept) tensors.push_back(one.type == ACL_DT_UNDEFINED ? Tensor() : view_of(one));
    return tensors;
  }
};

template <>
struct Argument<Scalar> {
  using Abi = const aclScalar*;
  using Kept = Scalar;
  static Kept keep(Abi scalar, std::vector<Extent>&) {
    if (!scalar) throw std::invalid_argument("a scalar that must be given is null");
    return scalar_of(*scalar);
  }
  static Scalar give(const Kept& kept) { return kept; }
};

template <>
struct Argument<OptScalar> {
  using Abi = const aclScalar*;
  using Kept = OptScalar;
  static Kept keep(Abi scalar, std::vector<Extent>&) {
    return scalar ? OptScalar(scalar_of(*scalar)) : std::nullopt;
  }
  static OptScalar give(const Kept& kept) { return kept; }
};

template <>
struct Argument<Scalars> {
  using Abi = const aclScalarList*;
  using Kept = Scalars;
  static Kept keep(Abi list, std::vector<Extent>&) {
    Kept kept;
    if (list)
      for (const aclScalar* scalar : list->scalars) kept.push_back(scalar_of(*scalar));
    return kept;
  }
  static Scalars give(const Kept& kept) { return kept; }
};

template <typename Array, typename Values>
struct ArrayArgument {
  using Abi = const Array*;
  using Kept = Values;
  static Kept keep(Abi array, std::vector<Extent>&) {
    return array ? Values(array->values.begin(), array->values.end()) : Values();
  }
  static Values give(const Kept& kept) { return kept; }
};
template <>
struct Argument<Ints> : ArrayArgument<aclIntArray, Ints> {};
template <>
struct Argument<Floats> : ArrayArgument<aclFloatArray, Floats> {};
template <>
struct Argument<Bools> : ArrayArgument<aclBoolArray, Bools> {};

template <>
struct Argument<OptInts> {
  using Abi = const aclIntArray*;
  using Kept = OptInts;
  static Kept keep(Abi array, std::vector<Extent>&) { return array ? OptInts(array->values) : std::nullopt; }
  static OptInts give(const Kept& kept) { return kept; }
};

template <>
struct Argument<Text> {
  using Abi = const char*;
  using Kept = Text;
  static Kept keep(Abi text, std::vector<Extent>&) { return text ? text : ""; }
  static Text give(const Kept& kept) { return kept; }
};

constexpr aclError kNullArgument = 161001;
constexpr aclError kInvalidArgument = 161002;
constexpr aclError kTilingFailed = 561002;

// What phase one throws when CANN would answer with another code than `kInvalidArgument`.
struct Refusal : std::invalid_argument {
  Refusal(aclError code_, const std::string& message) : std::invalid_argument(message), code(code_) {}
  aclError code;
};

// Phase one of the operator `Name` whose body is `Body`; `Bytes`, when there is one, says how much workspace it wants.
template <const char* Name, typename Signature>
struct Operator;

template <const char* Name, typename... Parameters>
struct Operator<Name, void(Parameters...)> {
  template <typename T>
  using A = Argument<std::decay_t<T>>;

  template <void (*Body)(Parameters...), uint64_t (*Bytes)(Parameters...)>
  static aclError prepare(typename A<Parameters>::Abi... arguments, uint64_t* size, aclOpExecutor** executor) {
    if (!size || !executor) return fail(kNullArgument, std::string(Name) + ": no place for the size or the executor");
    try {
      auto made = std::make_unique<aclOpExecutor>();
      made->work.name = Name;
      std::vector<Extent>& extents = made->work.extents;
      // Braces evaluate in order: extents come in the order of the parameters.
      std::tuple<typename A<Parameters>::Kept...> kept{A<Parameters>::keep(arguments, extents)...};
      if constexpr (Bytes != nullptr)
        made->workspace = std::apply([](const auto&... one) { return Bytes(A<Parameters>::give(one)...); }, kept);
      made->work.run = [kept = std::move(kept)] {
        c10::InferenceMode guard;
        std::apply([](const auto&... one) { Body(A<Parameters>::give(one)...); }, kept);
      };
      *size = made->workspace;
      *executor = made.release();
      return 0;
    } catch (const Refusal& refusal) {
      return fail(refusal.code, std::string(Name) + ": " + refusal.what());
    } catch (const std::exception& error) {
      return fail(kInvalidArgument, std::string(Name) + ": " + error.what());
    }
  }
};

// Phase two of every operator: put the executor's work on the stream, and dispose of the executor.
NPUSIM_SHARED aclError launch(void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream);

// A resolver must not depend on relocations: so the address it gives is that of a function of its own file.
static inline aclError launch_here(void* workspace, uint64_t size, aclOpExecutor* executor, aclrtStream stream) {
  return launch(workspace, size, executor, stream);
}

}  // namespace npusim

// A symbol is an indirect function: its resolver, run when the symbol is looked up, returns the address of the
// template instance that has the right signature. So the parameters are named once, in the operator's own line.
#define NPUSIM_SYMBOL(SYMBOL, ...)                                                                             \
  extern "C" {                                                                                                  \
  __attribute__((visibility("hidden"), used, no_sanitize("address", "thread", "undefined"))) auto               \
  npusim_resolve_##SYMBOL()->void (*)() {                                                                       \
    return reinterpret_cast<void (*)()>(&__VA_ARGS__);                                                          \
  }                                                                                                             \
  __attribute__((visibility("default"), ifunc("npusim_resolve_" #SYMBOL))) void SYMBOL();                       \
  }

#define NPUSIM_ACLNN(NAME, BYTES, PARAMETERS)                                                                   \
  static void NAME##_body PARAMETERS;                                                                           \
  static constexpr char NAME##_name[] = "aclnn" #NAME;                                                          \
  NPUSIM_SYMBOL(aclnn##NAME##GetWorkspaceSize,                                                                  \
                npusim::Operator<NAME##_name, void PARAMETERS>::prepare<NAME##_body, BYTES>)                    \
  NPUSIM_SYMBOL(aclnn##NAME, npusim::launch_here)                                                               \
  static void NAME##_body PARAMETERS

// An operator that needs no workspace.
#define ACLNN(NAME, PARAMETERS) NPUSIM_ACLNN(NAME, nullptr, PARAMETERS)

// An operator that asks for workspace: `BYTES` is a function of the same parameters that returns uint64_t.
#define ACLNN_WITH_WORKSPACE(NAME, BYTES, PARAMETERS) NPUSIM_ACLNN(NAME, BYTES, PARAMETERS)

// One more symbol, of the same signature, that asks for the greatest workspace of an operator defined above.
#define ACLNN_MAX_WORKSPACE(NAME, BYTES, PARAMETERS)                                                            \
  NPUSIM_SYMBOL(aclnn##NAME##GetMaxWorkspaceSize,                                                               \
                npusim::Operator<NAME##_name, void PARAMETERS>::prepare<NAME##_body, BYTES>)
