#include "guard.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory.h"

namespace zt::test {

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kTestDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_stream()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream_of(take_stream()); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream_of(take_stream()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream_of(exchange_stream(stream.id())); }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (Worker* worker = worker_of(stream.id())) worker->drain();
  }
  void synchronizeDevice(c10::DeviceIndex) const override { drain_streams(); }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    if (Worker* worker = worker_of(stream.id())) keep_for(memory.get(), *worker);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    delete static_cast<HostEvent*>(*event);
    *event = new HostEvent(worker_of(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) static_cast<HostEvent*>(event)->hold(worker_of(stream.id()));
  }
  bool queryEvent(void* event) const override { return !event || static_cast<HostEvent*>(event)->is_over(); }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<HostEvent*>(event)->wait();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<HostEvent*>(event); }

 private:
  static c10::Device device() { return {kTestDevice, 0}; }
  static c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device(), id); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  bool isPinnedPtr(const void* memory) const override { return is_pinned(memory); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return {kTestDevice, 0}; }
};

}  // namespace

void register_guard() {
  static Guard guard;
  c10::impl::registerDeviceGuard(kTestDevice, &guard);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kTestDevice, &device_allocator());
  at::globalContext().lazyInitDevice(kTestDevice);  // before it, no memory is pinned for LibTorch
}

}  // namespace zt::test
