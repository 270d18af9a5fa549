#include "device/host_memory.h"

#include <cstring>

#include "device/copy_stream.h"
#include "files/extents.h"
#include "files/kept_ranges.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/process/log.h"

namespace zt::offload {

namespace {

struct MemoryExtent {
  int64_t end() const { return begin + bytes.numel(); }

  int64_t begin;
  at::Tensor bytes;  // uint8
};

// Copies to and from the device have a stream each. They are in order with each other where a place is used again: whoever copies
// there has waited for the copy before it.
class PinnedMemory final : public HostMemory, public std::enable_shared_from_this<PinnedMemory> {
 public:
  PinnedMemory(const HomeNeeds& needs, World world, std::string caller)
      : world_(world),
        caller_(std::move(caller)),
        extents_(
            [this, device = needs.device](auto& all, int64_t begin, int64_t bytes) {
              all.emplace_back(begin, pinned_bytes(bytes, device));
              note_pinned(all.back().bytes);
            },
            needs.host),
        to_device_(needs.device),
        to_host_(needs.device) {}

  Work read(int64_t place, at::Tensor to) override {
    const at::Tensor from = memory(place, to.numel());
    return to_device_.copy(std::move(to), from, *to_device_.ready());
  }
  Work write(int64_t place, at::Tensor from) override {
    kept_.await_release(place, from.numel());
    return to_host_.copy(memory(place, from.numel()), from, *to_host_.ready());
  }
  HostBytes in_place(int64_t place, int64_t bytes) override {
    kept_.await_release(place, bytes);
    return {memory(place, bytes), to_host_.so_far()};
  }
  std::shared_ptr<KeptBytes> keep(int64_t place, int64_t bytes) override {
    to_host_.synchronize();
    return keep_bytes({shared_from_this(), &kept_}, place, bytes, [this](int64_t from, const at::Tensor& to) {
      std::memcpy(to.data_ptr(), memory(from, to.numel()).const_data_ptr(), static_cast<size_t>(to.numel()));
      return Work();
    });
  }
  int64_t take(int64_t bytes) override { return extents_.take(bytes); }
  void give_back(int64_t place, int64_t bytes) override { extents_.give_back(place, bytes); }

 private:
  at::Tensor memory(int64_t place, int64_t bytes) {
    const MemoryExtent& extent = extents_.at(place);
    return extent.bytes.narrow(0, place - extent.begin, bytes);
  }

  void note_pinned(const at::Tensor& bytes) {
    if (bytes.numel() == 0 || bytes.is_pinned() || world_.rank != 0 || std::exchange(has_said_, true)) return;
    log(LogLevel::info, world_,
        fmt::format("{}: the system does not let {} of host memory be pinned, so the device waits for each copy", caller_,
                    human_bytes(bytes.numel())));
  }

  const World world_;
  const std::string caller_;
  bool has_said_ = false;
  KeptRanges kept_;
  Extents<MemoryExtent> extents_;
  CopyStream to_device_, to_host_;  // they end first, and wait for their copies
};

}  // namespace

std::shared_ptr<HostMemory> make_host_memory(const HomeNeeds& needs, World world, const std::string& caller) {
  return std::make_shared<PinnedMemory>(needs, world, caller);
}

}  // namespace zt::offload
