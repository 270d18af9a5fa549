#include "host_streams.h"

#include "support/test_device/workers.h"

namespace zt::test::stand_in {

c10::Stream HostStreams::current() const {
  return stream_of(current_stream());
}

c10::Stream HostStreams::exchange(const c10::Stream& stream) const {
  return stream_of(exchange_stream(stream.id()));
}

c10::Stream HostStreams::take_from_pool() const {
  return stream_of(take_stream());
}

void HostStreams::give_back(const c10::Stream& stream) const {
  give_back_stream(stream.id());
}

cudaStream_t HostStreams::native(const c10::Stream& stream) const {
  return reinterpret_cast<cudaStream_t>(worker_of(stream.id()));
}

void* HostStreams::record(const c10::Stream& stream) const {
  return new HostEvent(worker_of(stream.id()));
}

void HostStreams::block(void* event, const c10::Stream& stream) const {
  static_cast<HostEvent*>(event)->hold(worker_of(stream.id()));
}

bool HostStreams::query(void* event) const {
  return static_cast<HostEvent*>(event)->is_over();
}

void HostStreams::destroy(void* event) const noexcept {
  delete static_cast<HostEvent*>(event);
}

void HostStreams::keep_for(const c10::Stream& stream, const at::Tensor& tensor) const {
  if (Worker* worker = worker_of(stream.id())) worker->keep(std::make_shared<at::Tensor>(tensor));
}

void HostStreams::synchronize() const {
  drain_streams();
}

}  // namespace zt::test::stand_in
