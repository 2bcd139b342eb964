// The context of ATB: the stream that operations are executed on.
#include <atomic>

#include "../core/launch.h"
#include "../operators/operator.h"
#include "abi.h"

namespace {

// torch_npu has one context and sets its stream before each call, from whichever thread makes the call.
class StreamContext final : public atb::Context {
 public:
  atb::Status SetExecuteStream(aclrtStream stream) override {
    stream_ = stream;
    return 0;
  }
  aclrtStream GetExecuteStream() const override { return stream_; }

 private:
  std::atomic<aclrtStream> stream_{nullptr};
};

}  // namespace

namespace atb {

Status CreateContext(Context** context) {
  if (!context) return npusim::fail(npusim::kNullArgument, "ATB CreateContext: no place for the context");
  *context = new StreamContext();
  return 0;
}

Status DestroyContext(Context* context) {
  delete context;
  return 0;
}

}  // namespace atb
