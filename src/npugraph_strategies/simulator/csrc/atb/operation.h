// How an operation of ATB is written: a function of its parameters and of the tensors of one call that returns a plan.
//
// ATB's two phases are `Setup`, which says how much workspace the call wants and reads the host's tensors, and
// `Execute`, which launches. They may run in different threads, and the operation may be destroyed, or set up again,
// as soon as `Execute` returns: so a plan owns everything it needs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../operators/operator.h"
#include "abi.h"

namespace npusim {

// One tensor of a call. It may be absent (an optional that was not given), lie on the host, or lie on the device.
class Operand {
 public:
  Operand() = default;
  explicit Operand(const atb::Tensor& tensor);      // as the C++ interface gives it
  explicit Operand(const aclTensor* tensor);        // as the C interface gives it: null is absent

  bool given() const { return given_; }
  // What the tensor of that name is on the device; throws if it is absent or on the host.
  const aclTensor& device(const char* name) const;
  // The values of a tensor of int32 or int64 on the host; throws if it is absent or on the device.
  Ints values(const char* name) const;

 private:
  aclTensor descriptor_;
  bool given_ = false;
  bool host_ = false;
};

// The tensors of a call, taken in the order that the operation's documentation gives.
struct Call {
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;

  Call() = default;
  explicit Call(const atb::VariantPack& pack);  // throws if the pack is not laid out as abi.h says
};

struct Plan {
  uint64_t workspace = 0;  // bytes
  std::vector<aclTensor> touched;  // everything on the device that is read or written
  std::function<void()> run;
};

using Planner = std::function<Plan(const Call&)>;

// Check a fact about a call; the message says what was expected and what was given.
#define NPUSIM_REQUIRE(FACT, ...) TORCH_CHECK_VALUE(FACT, __VA_ARGS__)

class PlannedOperation final : public atb::Operation {
 public:
  explicit PlannedOperation(std::string name, Planner planner = nullptr)
      : name_(std::move(name)), planner_(std::move(planner)) {}

  std::string GetName() const override { return name_; }
  atb::Status InferShape(const atb::SVector<atb::TensorDesc>& inputs,
                         atb::SVector<atb::TensorDesc>& outputs) const override;
  uint32_t GetInputNum() const override { return inputs_; }
  uint32_t GetOutputNum() const override { return outputs_; }
  atb::Status Setup(const atb::VariantPack& pack, uint64_t& workspace, atb::Context* context) override;
  atb::Status Execute(const atb::VariantPack& pack, uint8_t* workspace, uint64_t size, atb::Context* context) override;

  // Setup and Execute of the C interface, whose calls have arguments of their own instead of a pack.
  atb::Status prepare(const std::function<Plan()>& make, uint64_t& workspace, const atb::Context* context);
  atb::Status launch(void* workspace, uint64_t size, const atb::Context* context);

 private:
  const std::string name_;
  const Planner planner_;
  std::optional<Plan> plan_;
  aclrtStream stream_ = nullptr;       // that the plan was made for
  uint32_t inputs_ = 0, outputs_ = 0;  // of the last call
};

// What every CreateOperation does: `planner` gets a copy of the parameters and the tensors of each call.
template <typename Param>
atb::Status create(const char* name, const Param& param, Plan (*planner)(const Param&, const Call&),
                   atb::Operation** operation) {
  if (!operation) return fail(kNullArgument, std::string("ATB ") + name + ": no place for the operation");
  *operation = new PlannedOperation(name, [param, planner](const Call& call) { return planner(param, call); });
  return 0;
}

}  // namespace npusim
