#include "device/tiers.h"

#include "device/device_files.h"
#include "device/host_memory.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::offload {

namespace {

class Tiers final : public Homes {
 public:
  Tiers(std::shared_ptr<HostMemory> host, std::shared_ptr<TierMemory> files) : host_(std::move(host)), files_(std::move(files)) {}

  Work read(Tier tier, int64_t place, at::Tensor to) override { return of(tier).read(place, std::move(to)); }
  Work write(Tier tier, int64_t place, at::Tensor from) override { return of(tier).write(place, std::move(from)); }
  HostBytes in_place(Tier tier, int64_t place, int64_t bytes) override {
    return host_ && tier == Tier::host ? host_->in_place(place, bytes) : Homes::in_place(tier, place, bytes);
  }
  std::shared_ptr<KeptBytes> keep(Tier tier, int64_t place, int64_t bytes) override { return of(tier).keep(place, bytes); }
  int64_t take(Tier tier, int64_t bytes) override { return of(tier).take(bytes); }
  void give_back(Tier tier, int64_t place, int64_t bytes) override { of(tier).give_back(place, bytes); }

 private:
  TierMemory& of(Tier tier) const {
    TierMemory* memory = nullptr;
    if (tier == Tier::file) memory = files_.get();
    if (tier == Tier::host) memory = host_.get();
    if (!memory) fault("the run has no place for data of home={}", word_of(tier));
    return *memory;
  }

  const std::shared_ptr<HostMemory> host_;
  const std::shared_ptr<TierMemory> files_;
};

}  // namespace

std::shared_ptr<Homes> make_tiers(const DiskOptions& options, bool has_files, const HomeNeeds& needs) {
  const bool has_host = !needs.device.is_cpu();
  if (!has_host && needs.host > 0)
    misuse("data of home=host need a device with memory of its own: this program moves {} there", human_bytes(needs.host));
  std::shared_ptr<HostMemory> host;
  std::shared_ptr<TierMemory> files;
  if (has_files) files = make_swap_memory(options, needs);
  if (has_host && files) files = make_device_files(std::move(files), needs.device);
  if (has_host) host = make_host_memory(needs, options.world, options.caller);
  return std::make_shared<Tiers>(std::move(host), std::move(files));
}

}  // namespace zt::offload
