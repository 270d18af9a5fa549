// The streams of tests/support/test_device, as the nccl backend takes them.
#pragma once

#include "nccl/api.h"

namespace zt::test::stand_in {

class HostStreams : public comm::StreamApi {
 public:
  explicit HostStreams(at::Device device) : device_(device) {}
  at::Device device() const override { return device_; }
  c10::Stream current() const override;
  c10::Stream exchange(const c10::Stream& stream) const override;
  c10::Stream take_from_pool() const override;
  void give_back(const c10::Stream& stream) const override;
  cudaStream_t native(const c10::Stream& stream) const override;
  void* record(const c10::Stream& stream) const override;
  void block(void* event, const c10::Stream& stream) const override;
  bool query(void* event) const override;
  void destroy(void* event) const noexcept override;
  void keep_for(const c10::Stream& stream, const at::Tensor& tensor) const override;
  void synchronize() const override;

 private:
  c10::Stream stream_of(c10::StreamId id) const { return c10::Stream(c10::Stream::UNSAFE, device_, id); }

  const at::Device device_;
};

}  // namespace zt::test::stand_in

// The toolkit takes streams from this function of the library that ZT_NCCL names (comm/nccl/api.cpp).
extern "C" void zt_nccl_streams(std::shared_ptr<const zt::comm::StreamApi>* streams);
