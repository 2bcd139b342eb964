#include "operation.h"

#include <c10/util/strides.h>

#include <numeric>
#include <stdexcept>

namespace npusim {
namespace {

constexpr int32_t kPlainFormats[] = {-1, 0, 1, 2, 27, 30};  // undefined, NCHW, NHWC, ND, NDHWC, NCDHW
constexpr size_t kMostTensors = 256;

uint64_t bytes_of(const atb::TensorDesc& desc) {
  const int64_t* dims = desc.shape.dims;
  return std::accumulate(dims, dims + desc.shape.dimNum, static_cast<uint64_t>(element_bytes(desc.dtype)),
                         [](uint64_t bytes, int64_t size) { return bytes * static_cast<uint64_t>(size); });
}

// Refuse what cannot be a tensor: then the wheel was compiled with other declarations than abi.h.
void require_sane(const atb::Tensor& tensor) {
  const atb::TensorDesc& desc = tensor.desc;
  const bool ranked = desc.shape.dimNum <= atb::kMaxDims;
  bool sane = ranked && element_bytes(desc.dtype) != 0;
  for (size_t d = 0; sane && d < desc.shape.dimNum; ++d) sane = desc.shape.dims[d] >= 0;
  sane = sane && tensor.dataSize == bytes_of(desc) && !(tensor.deviceData && tensor.hostData);
  NPUSIM_REQUIRE(sane, "a tensor makes no sense (type ", static_cast<int32_t>(desc.dtype), ", ", desc.shape.dimNum,
                 " dimensions, ", tensor.dataSize, " bytes): this torch_npu was built for another ATB interface "
                 "than the one of 2.13 that the simulator knows");
}

std::vector<Operand> operands(const atb::SVector<atb::Tensor>& tensors) {
  const bool sane = tensors.size <= kMostTensors && (tensors.heap || tensors.size <= tensors.kInPlace);
  NPUSIM_REQUIRE(sane, "a list claims to hold ", tensors.size, " tensors: this torch_npu was built for another ATB "
                 "interface than the one of 2.13 that the simulator knows");
  std::vector<Operand> all;
  for (size_t i = 0; i < tensors.size; ++i) all.emplace_back(tensors.data()[i]);
  return all;
}

}  // namespace

Operand::Operand(const atb::Tensor& tensor) {
  if (tensor.desc.dtype == ACL_DT_UNDEFINED) return;
  require_sane(tensor);
  const atb::Dims& shape = tensor.desc.shape;
  descriptor_.sizes.assign(shape.dims, shape.dims + shape.dimNum);
  const auto strides = c10::contiguous_strides(descriptor_.sizes);
  descriptor_.strides.assign(strides.begin(), strides.end());
  descriptor_.storage_sizes = descriptor_.sizes;
  descriptor_.type = tensor.desc.dtype;
  descriptor_.format = tensor.desc.format;
  given_ = true;
  host_ = tensor.hostData != nullptr;
  descriptor_.base = host_ ? tensor.hostData : tensor.deviceData;
}

Operand::Operand(const aclTensor* tensor) {
  if (!tensor) return;
  descriptor_ = *tensor;
  given_ = true;
  const Extent extent = extent_of(descriptor_);
  host_ = extent.bytes != 0 && !is_device_memory(extent.address, extent.bytes);
}

const aclTensor& Operand::device(const char* name) const {
  NPUSIM_REQUIRE(given_, name, " must be given");
  NPUSIM_REQUIRE(!host_, name, " must be on the device; given a tensor of the host");
  bool plain = false;
  for (int32_t format : kPlainFormats) plain = plain || descriptor_.format == format;
  NPUSIM_REQUIRE(plain, name, " has the private format ", descriptor_.format, ", which is not simulated");
  return descriptor_;
}

Ints Operand::values(const char* name) const {
  NPUSIM_REQUIRE(given_, name, " must be given");
  NPUSIM_REQUIRE(host_ || extent_of(descriptor_).bytes == 0, name,
                 " must be on the host, where it is read when the operator is launched; given a tensor of the device");
  const bool integers = descriptor_.type == ACL_INT32 || descriptor_.type == ACL_INT64;
  NPUSIM_REQUIRE(integers, name, " must be int32 or int64; given ", scalar_type(descriptor_.type));
  if (!host_) return {};
  const at::Tensor values = view_of(descriptor_).to(at::kLong).contiguous().flatten();
  return Ints(values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.numel());
}

Call::Call(const atb::VariantPack& pack) : inputs(operands(pack.inTensors)), outputs(operands(pack.outTensors)) {}

atb::Status PlannedOperation::InferShape(const atb::SVector<atb::TensorDesc>&,
                                         atb::SVector<atb::TensorDesc>&) const {
  return fail(kInvalidArgument, "ATB " + name_ + ": shapes are not inferred by the simulator");
}

atb::Status PlannedOperation::Setup(const atb::VariantPack& pack, uint64_t& workspace,
                                    atb::Context* context) {
  return prepare(
      [this, &pack] {
        const Call call(pack);
        inputs_ = static_cast<uint32_t>(call.inputs.size());
        outputs_ = static_cast<uint32_t>(call.outputs.size());
        return planner_(call);
      },
      workspace, context);
}

atb::Status PlannedOperation::Execute(const atb::VariantPack&, uint8_t* workspace, uint64_t size,
                                      atb::Context* context) {
  return launch(workspace, size, context);
}

atb::Status PlannedOperation::prepare(const std::function<Plan()>& make, uint64_t& workspace,
                                      const atb::Context* context) {
  plan_.reset();
  if (!context) return fail(kNullArgument, "ATB " + name_ + ": set up without a context");
  stream_ = context->GetExecuteStream();
  try {
    plan_ = make();
    workspace = plan_->workspace;
    return 0;
  } catch (const c10::Error& error) {
    return fail(kInvalidArgument, "ATB " + name_ + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(kInvalidArgument, "ATB " + name_ + ": " + error.what());
  }
}

atb::Status PlannedOperation::launch(void* workspace, uint64_t size, const atb::Context* context) {
  if (!context) return fail(kNullArgument, "ATB " + name_ + ": executed without a context");
  if (!plan_) return fail(kInvalidArgument, "ATB " + name_ + ": executed without a set up that succeeded");
  // All calls share one context: torch_npu sets its stream, and in a capture it executes later, in another thread.
  if (context->GetExecuteStream() != stream_)
    return fail(kInvalidArgument, "ATB " + name_ + ": another call changed the stream of the context between the set "
                                  "up and the execution: on a device this operation would run on the wrong stream");
  Work work{"Atb" + name_, {}, [run = plan_->run] {
              c10::InferenceMode guard;
              run();
            }};
  for (const aclTensor& tensor : plan_->touched) work.extents.push_back(extent_of(tensor));
  if (size < plan_->workspace) {
    // Outside a capture torch_npu drops the status that Execute returns: so the stream fails as well.
    const std::string problem = "ATB " + name_ + ": the workspace has " + std::to_string(size) +
                                " bytes, and these lengths need " + std::to_string(plan_->workspace);
    work.run = [problem] { throw std::runtime_error(problem); };
    const atb::Status status = fail(kInvalidArgument, problem);
    submit(stream_, std::move(work));
    return status;
  }
  if (plan_->workspace) work.extents.push_back({workspace, plan_->workspace});
  return submit(stream_, std::move(work));
}

}  // namespace npusim

namespace atb {

Status DestroyOperation(Operation* operation) {
  delete operation;
  return 0;
}

uint64_t Utils::GetTensorSize(const Tensor& tensor) {
  return tensor.desc.shape.dimNum <= kMaxDims ? npusim::bytes_of(tensor.desc) : 0;
}

}  // namespace atb
