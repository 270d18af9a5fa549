#include "device/device_files.h"

#include "device/copy_stream.h"
#include "device/pinned_pool.h"
#include "device/relay.h"

namespace zt::offload {

namespace {

class DeviceFiles final : public Homes {
 public:
  DeviceFiles(std::shared_ptr<Homes> files, at::Device device)
      : files_(std::move(files)), pool_(device), to_device_(device), to_host_(device) {}

  Work read(Tier tier, int64_t place, at::Tensor to) override {
    if (to.is_cpu()) return files_->read(tier, place, std::move(to));
    const PinnedBytes memory = pool_.take(to.numel());
    const auto copy = [this, to, memory, ready = to_device_.ready()] { return to_device_.copy(to, memory.bytes, *ready); };
    const auto give_back = [this, memory](const Work& copied) {
      copied.synchronize();
      pool_.give_back(memory);
    };
    return arrivals_.add(files_->read(tier, place, memory.bytes), copy, give_back);
  }
  Work write(Tier tier, int64_t place, at::Tensor from) override {
    if (from.is_cpu()) return files_->write(tier, place, std::move(from));
    const PinnedBytes memory = pool_.take(from.numel());
    const auto write = [this, tier, place, memory] {
      return then(files_->write(tier, place, memory.bytes), [this, memory] { pool_.give_back(memory); });
    };
    return departures_.add(to_host_.copy(memory.bytes, from, *to_host_.ready()), write);
  }
  std::shared_ptr<KeptBytes> keep(Tier tier, int64_t place, int64_t bytes) override { return files_->keep(tier, place, bytes); }
  int64_t take(Tier tier, int64_t bytes) override { return files_->take(tier, bytes); }
  void give_back(Tier tier, int64_t place, int64_t bytes) override { files_->give_back(tier, place, bytes); }

 private:
  const std::shared_ptr<Homes> files_;
  PinnedPool pool_;
  CopyStream to_device_, to_host_;
  Relay arrivals_, departures_;  // they end first
};

}  // namespace

std::shared_ptr<Homes> make_device_files(std::shared_ptr<Homes> files, at::Device device) {
  return std::make_shared<DeviceFiles>(std::move(files), device);
}

}  // namespace zt::offload
