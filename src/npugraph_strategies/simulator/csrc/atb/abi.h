// The C++ interface of ATB as far as torch_npu 2.13 uses it: layouts of what crosses, and the order of virtual calls.
//
// Declared from observation: which symbols the wheel's library asks for, where it writes what, and which slot of a
// table it calls. No vendor header was used. What is never read or called is left out. Operands (operation.h) are
// compared with what this file says as they arrive, so that another layout is reported and not misread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "../core/abi.h"

namespace atb __attribute__((visibility("default"))) {

using Status = int32_t;

constexpr size_t kMaxDims = 8;

struct Dims {
  int64_t dims[kMaxDims];
  uint64_t dimNum;
};

struct TensorDesc {
  aclDataType dtype;
  int32_t format;
  Dims shape;
};

// Exactly one of the pointers is set: `hostData` for a tensor of the CPU, whose values are read during `Setup`.
struct Tensor {
  TensorDesc desc;
  void* deviceData;
  void* hostData;
  uint64_t dataSize;  // bytes
};
static_assert(sizeof(TensorDesc) == 80 && offsetof(Tensor, deviceData) == 80 && sizeof(Tensor) == 104);

// A vector that holds up to 65 elements in place, and otherwise all of them on the heap.
template <typename T>
struct SVector {
  static constexpr size_t kInPlace = 65;
  uint64_t capacity;
  uint64_t size;
  T storage[kInPlace];
  T* heap;

  const T* data() const { return heap ? heap : storage; }
};
static_assert(offsetof(SVector<Tensor>, heap) == 0x1a78 && sizeof(SVector<Tensor>) == 0x1a80);

struct VariantPack {
  SVector<Tensor> inTensors;
  SVector<Tensor> outTensors;
};

// More virtual functions follow, which torch_npu never calls.
class Context {
 public:
  virtual ~Context() = default;
  virtual Status SetExecuteStream(aclrtStream stream) = 0;
  virtual aclrtStream GetExecuteStream() const = 0;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string GetName() const = 0;
  virtual Status InferShape(const SVector<TensorDesc>& inputs, SVector<TensorDesc>& outputs) const = 0;
  virtual uint32_t GetInputNum() const = 0;
  virtual uint32_t GetOutputNum() const = 0;
  virtual Status Setup(const VariantPack& pack, uint64_t& workspaceSize, Context* context) = 0;
  virtual Status Execute(const VariantPack& pack, uint8_t* workspace, uint64_t workspaceSize, Context* context) = 0;
};

Status CreateContext(Context** context);
Status DestroyContext(Context* context);
Status DestroyOperation(Operation* operation);

class Utils {
 public:
  static uint64_t GetTensorSize(const Tensor& tensor);
};

template <typename Param>
Status CreateOperation(const Param& param, Operation** operation);

// Parameters, each as far as it is read.
namespace infer {

struct PagedAttentionParam {
  int32_t headNum;
  float qkScale;
  int32_t kvHeadNum;
  int32_t maskType;
  bool batchRunStatusEnable;
  int32_t quantType;
  int32_t outDataType;
  bool hasQuantOffset;
  int32_t compressType;
  int32_t calcType;
  int32_t scaleType;
  int32_t inputLayout;
  uint32_t mlaVHeadSize;
};
static_assert(offsetof(PagedAttentionParam, quantType) == 0x14 && offsetof(PagedAttentionParam, compressType) == 0x20 &&
              offsetof(PagedAttentionParam, mlaVHeadSize) == 0x30);

struct ReshapeAndCacheParam {
  int32_t compressType;
  int32_t kvCacheCfg;
};

struct SelfAttentionParam {
  int32_t quantType;
  int32_t outDataType;
  int32_t headNum;
  int32_t kvHeadNum;
  float qScale;
  float qkScale;
  bool batchRunStatusEnable;
  uint32_t isTriuMask;
  int32_t calcType;
  int32_t kernelType;
  int32_t clampType;
  float clampMin;
  float clampMax;
  int32_t maskType;
  int32_t kvcacheCfg;
  int32_t scaleType;
  int32_t inputLayout;
};
static_assert(offsetof(SelfAttentionParam, isTriuMask) == 0x1c && offsetof(SelfAttentionParam, maskType) == 0x34);

struct RopeParam {
  int32_t rotaryCoeff;
  int32_t cosFormat;
};

struct RmsNormParam {
  struct Norm {
    int32_t quantType;
    float epsilon;
    double layerNormEps;
  };
  int32_t layerType;
  Norm normParam;
};
static_assert(offsetof(RmsNormParam, normParam) == 8);

struct ElewiseParam {
  int32_t elewiseType;
};

struct GroupTopkParam {
  int32_t groupNum;
  int32_t k;
  uint16_t groupMultiFlag;
  uint16_t n;
};

struct LinearParam {
  bool transposeA;
  bool transposeB;
  bool hasBias;
  int32_t outDataType;
  bool enAccum;
};
static_assert(offsetof(LinearParam, enAccum) == 8);

}  // namespace infer
}  // namespace atb
