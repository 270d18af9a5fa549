#include "device/tiers.h"

#include "device/device_files.h"
#include "device/host_homes.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::offload {

namespace {

class Tiers final : public Homes {
 public:
  Tiers(std::shared_ptr<Homes> host, std::shared_ptr<Homes> files) : host_(std::move(host)), files_(std::move(files)) {}

  Work read(Tier tier, int64_t place, at::Tensor to) override { return of(tier).read(tier, place, std::move(to)); }
  Work write(Tier tier, int64_t place, at::Tensor from) override { return of(tier).write(tier, place, std::move(from)); }
  HostBytes in_place(Tier tier, int64_t place, int64_t bytes) override { return of(tier).in_place(tier, place, bytes); }
  std::shared_ptr<KeptBytes> keep(Tier tier, int64_t place, int64_t bytes) override { return of(tier).keep(tier, place, bytes); }
  int64_t take(Tier tier, int64_t bytes) override { return of(tier).take(tier, bytes); }
  void give_back(Tier tier, int64_t place, int64_t bytes) override { of(tier).give_back(tier, place, bytes); }

 private:
  Homes& of(Tier tier) const {
    const auto& homes = tier == Tier::file ? files_ : host_;
    if (!homes) fault("the run has no place for data of home={}", word_of(tier));
    return *homes;
  }

  const std::shared_ptr<Homes> host_, files_;
};

}  // namespace

std::shared_ptr<Homes> make_tiers(const DiskOptions& options, bool has_files, const HomeNeeds& needs) {
  std::shared_ptr<Homes> files;
  if (has_files) files = make_swap_homes(options, needs);
  if (needs.device.is_cpu()) {
    if (needs.host > 0)
      misuse("data of home=host need a device with memory of its own: this program moves {} there", human_bytes(needs.host));
    return files;
  }
  if (files) files = make_device_files(std::move(files), needs.device);
  return std::make_shared<Tiers>(make_host_homes(needs, options.world, options.caller), std::move(files));
}

}  // namespace zt::offload
