#include "device/copy_stream.h"

#include <c10/core/StreamGuard.h>

namespace zt::offload {

namespace {

class Copying final : public Work::State {
 public:
  Copying(at::Device device, c10::Event over) : device_(device), over_(std::move(over)) {}
  bool done() override { return over_.query(); }
  void wait() override { over_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }
  void synchronize() override { over_.synchronize(); }

 private:
  const at::Device device_;
  const c10::Event over_;
};

class CopiesSoFar final : public Work::State {
 public:
  explicit CopiesSoFar(c10::Event over) : over_(std::move(over)) {}
  bool done() override { return over_.query(); }
  void wait() override { over_.synchronize(); }
  void synchronize() override { over_.synchronize(); }

 private:
  const c10::Event over_;
};

}  // namespace

CopyStream::CopyStream(at::Device device)
    : device_(device), guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

CopyStream::~CopyStream() {
  try {
    synchronize();
  } catch (const std::exception&) {  // whoever started a copy has failed already
  }
}

std::shared_ptr<const c10::Event> CopyStream::ready() const {
  auto ready = std::make_shared<c10::Event>(device_.type());
  ready->record(guard_.getStream(device_));
  return ready;
}

Work CopyStream::so_far() const {
  c10::Event over(device_.type());
  over.record(stream_);
  return Work(std::make_shared<CopiesSoFar>(std::move(over)));
}

Work CopyStream::copy(at::Tensor to, const at::Tensor& from, const c10::Event& ready) {
  ready.block(stream_);
  const c10::StreamGuard on_stream(stream_);
  to.copy_(from, /*non_blocking=*/true);
  for (const at::Tensor& end : {to, from}) {
    if (end.device() == device_) guard_.recordDataPtrOnStream(end.storage().data_ptr(), stream_);
  }
  c10::Event over(device_.type());
  over.record(stream_);
  return Work(std::make_shared<Copying>(device_, std::move(over)));
}

}  // namespace zt::offload
