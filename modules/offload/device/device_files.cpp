#include "device/device_files.h"

#include "device/copy_stream.h"
#include "device/pinned_pool.h"
#include "device/relay.h"

namespace zt::offload {

namespace {

class DeviceFiles final : public TierMemory {
 public:
  DeviceFiles(std::shared_ptr<TierMemory> files, at::Device device)
      : files_(std::move(files)), pool_(device), to_device_(device), to_host_(device) {}

  Work read(int64_t place, at::Tensor to) override {
    if (to.is_cpu()) return files_->read(place, std::move(to));
    const PinnedBytes memory = pool_.take(to.numel());
    const auto copy = [this, to, memory, ready = to_device_.ready()] { return to_device_.copy(to, memory.bytes, *ready); };
    const auto give_back = [this, memory](const Work& copied) {
      copied.synchronize();
      pool_.give_back(memory);
    };
    return arrivals_.add(files_->read(place, memory.bytes), copy, give_back);
  }
  Work write(int64_t place, at::Tensor from) override {
    if (from.is_cpu()) return files_->write(place, std::move(from));
    const PinnedBytes memory = pool_.take(from.numel());
    const auto write = [this, place, memory] {
      return then(files_->write(place, memory.bytes), [this, memory] { pool_.give_back(memory); });
    };
    return departures_.add(to_host_.copy(memory.bytes, from, *to_host_.ready()), write);
  }
  std::shared_ptr<KeptBytes> keep(int64_t place, int64_t bytes) override { return files_->keep(place, bytes); }
  int64_t take(int64_t bytes) override { return files_->take(bytes); }
  void give_back(int64_t place, int64_t bytes) override { files_->give_back(place, bytes); }

 private:
  const std::shared_ptr<TierMemory> files_;
  PinnedPool pool_;
  CopyStream to_device_, to_host_;
  Relay arrivals_, departures_;  // they end first
};

}  // namespace

std::shared_ptr<TierMemory> make_device_files(std::shared_ptr<TierMemory> files, at::Device device) {
  return std::make_shared<DeviceFiles>(std::move(files), device);
}

}  // namespace zt::offload
