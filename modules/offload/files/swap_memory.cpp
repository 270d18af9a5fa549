#include "files/swap_memory.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "files/block_sums.h"
#include "files/disk_space.h"
#include "files/extents.h"
#include "files/kept_ranges.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/io/io_errors.h"
#include "zt/io/swap_file.h"
#include "zt/process/log.h"

namespace zt::offload {

namespace {

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

// A swap file, and the place of its first byte in the tier.
struct Extent {
  Extent(io::FileSystem& files, io::SwapOptions options, int64_t begin, bool has_sums)
      : begin(begin), swap(files, std::move(options)) {
    if (has_sums) sums.emplace(swap.options().bytes);
  }
  int64_t end() const { return begin + swap.options().bytes; }

  const int64_t begin;
  std::optional<BlockSums> sums;
  io::SwapFile swap;
};

class SwapMemory final : public TierMemory, public std::enable_shared_from_this<SwapMemory> {
 public:
  SwapMemory(std::shared_ptr<io::FileSystem> files, io::SwapOptions options, bool has_sums, World world, std::string caller)
      : files_(std::move(files)),
        options_(std::move(options)),
        world_(world),
        caller_(std::move(caller)),
        extents_(
            [this, has_sums](auto& all, int64_t begin, int64_t bytes) {
              io::SwapOptions more = options_;
              more.bytes = bytes;
              all.emplace_back(*files_, std::move(more), begin, has_sums);
            },
            options_.bytes) {}

  // Says once what makes transfers slower than they could be.
  void pin(const at::Tensor& arena) {
    io::SwapFile& swap = extents_.first().swap;
    const bool is_pinned = !arena.defined() || !arena.is_cpu() || swap.pin(bytes_of(arena));
    if (world_.rank != 0) return;
    if (options_.caching == io::Caching::direct && !swap.is_direct())
      say(LogLevel::info, "the file system has no direct I/O, so data pass through the page cache");
    if (!is_pinned)
      say(LogLevel::info, "the system does not let {} of memory be locked, so each transfer costs more: raise `ulimit -l`",
          human_bytes(arena.numel()));
  }

  // Small models need smaller slices.
  void compare_sizes(const HomeNeeds& needs) const {
    const int64_t staging = needs.arena.defined() ? needs.arena.numel() : 0;
    if (world_.rank == 0 && needs.files > 0 && staging > needs.files + needs.host)
      say(LogLevel::info,
          "the places in memory take {}, more than the {} that travel: give a smaller slice, or leave the data in memory",
          human_bytes(staging), human_bytes(needs.files + needs.host));
  }

  Work read(int64_t place, at::Tensor to) override { return start(io::IoDirection::read, place, std::move(to)); }
  Work write(int64_t place, at::Tensor from) override {
    kept_.await_release(place, from.numel());
    return start(io::IoDirection::write, place, std::move(from));
  }
  std::shared_ptr<KeptBytes> keep(int64_t place, int64_t bytes) override {
    return keep_bytes({shared_from_this(), &kept_}, place, bytes,
                      [this](int64_t from, at::Tensor to) { return read(from, std::move(to)); });
  }
  // Activations are taken as they leave, so a disk that is too small for them is found in the first step.
  int64_t take(int64_t bytes) override {
    try {
      return extents_.take(bytes);
    } catch (const io::DiskFull& error) {
      throw io::DiskFull(
          fmt::format("{}: the activations that have left so far take {} in '{}', and there is no room for {} more: let more of "
                      "them stay (activations_stay, activation_bytes), give zt.recompute, or take another disk ({})",
                      caller_, human_bytes(extents_.all().back().end() - options_.bytes), fmt::join(options_.folders, "', '"),
                      human_bytes(bytes), error.what()));
    }
  }
  void give_back(int64_t place, int64_t bytes) override { extents_.give_back(place, bytes); }

 private:
  // Keeps the memory that is moved. The files outlive all works.
  class Transfer final : public Work::State {
   public:
    Transfer(SwapMemory& owner, Extent& extent, int64_t place, at::Tensor memory, io::IoDirection direction)
        : owner_(owner), extent_(extent), place_(place), memory_(std::move(memory)), direction_(direction) {
      const std::lock_guard lock(owner_.mutex_);
      const std::span<std::byte> bytes = bytes_of(memory_);
      if (direction_ == io::IoDirection::read) {
        ticket_ = extent_.swap.read(place_, bytes);
      } else {
        if (extent_.sums) extent_.sums->note(place_, bytes);
        ticket_ = extent_.swap.write(place_, bytes);
      }
    }

    // The system may move the memory until then.
    ~Transfer() override {
      try {
        wait();
      } catch (const std::exception&) {  // whoever started the transfer has failed already
      }
    }

    bool done() override {
      const std::lock_guard lock(owner_.mutex_);
      return has_ended_ || extent_.swap.is_done(ticket_);
    }
    void wait() override {
      const std::lock_guard lock(owner_.mutex_);
      if (fault_) std::rethrow_exception(fault_);
      if (std::exchange(has_ended_, true)) return;
      const auto begin = std::chrono::steady_clock::now();
      try {
        extent_.swap.wait(ticket_);
        owner_.note_wait(memory_.numel(), begin);
        if (extent_.sums && direction_ == io::IoDirection::read) owner_.compare(extent_, place_, memory_);
      } catch (...) {
        fault_ = std::current_exception();
        throw;
      }
    }
    void synchronize() override { wait(); }

   private:
    SwapMemory& owner_;
    Extent& extent_;
    const int64_t place_;  // in the extent
    const at::Tensor memory_;
    const io::IoDirection direction_;
    io::SwapFile::Ticket ticket_ = 0;
    bool has_ended_ = false;
    std::exception_ptr fault_;
  };

  Work start(io::IoDirection direction, int64_t place, at::Tensor memory) {
    Extent& extent = extents_.at(place);
    return Work(std::make_shared<Transfer>(*this, extent, place - extent.begin, std::move(memory), direction));
  }

  void compare(const Extent& extent, int64_t place, const at::Tensor& read) const {
    const int64_t wrong = extent.sums->first_difference(place, bytes_of(read));
    if (wrong >= 0)
      fault(
          "the swap file in '{}' returned other bytes than were written, in the {} from byte {}: the disk or its memory is damaged, use "
          "another folder and resume from a checkpoint",
          fmt::join(options_.folders, "', '"), kSumBlock, wrong);
  }

  // Logs a line about the files, on this rank.
  template <class... Args>
  void say(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    log(level, world_,
        fmt::format("{}, files in '{}': {}", caller_, fmt::join(options_.folders, "', '"),
                    fmt::format(format, std::forward<Args>(args)...)));
  }

  // A disk may stop for seconds, as an SSD whose cache is full does. That is said once.
  void note_wait(int64_t bytes, std::chrono::steady_clock::time_point begin) {
    constexpr double kLong = 3;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds < kLong || std::exchange(has_waited_, true)) return;
    say(LogLevel::warn,
        "the disk is slow, {:.1f} s for {} ({}/s). Measure it by `ztoolkit io bench`; let more stay in memory, or take another disk",
        seconds, human_bytes(bytes), human_bytes(static_cast<int64_t>(static_cast<double>(bytes) / seconds)));
  }

  const std::shared_ptr<io::FileSystem> files_;
  const io::SwapOptions options_;
  const World world_;
  const std::string caller_;
  bool has_waited_ = false;
  std::mutex mutex_;         // of the swap files: a thread that saves reads them, too
  Extents<Extent> extents_;  // the first has the bytes of HomeNeeds
  KeptRanges kept_;
};

// As many operations as all places in memory have.
int depth_of(const DiskOptions& options, const HomeNeeds& needs) {
  if (options.depth) return *options.depth;
  int64_t operations = 0;
  for (const at::Tensor& slot : needs.slots) operations += slot.numel() > 0 ? slot.numel() / options.block + 2 : 0;
  return static_cast<int>(std::clamp<int64_t>(operations, 8, 1024));
}

}  // namespace

std::shared_ptr<TierMemory> make_swap_memory(const DiskOptions& options, const HomeNeeds& needs) {
  const auto spaces = gather_spaces(options, needs);
  check_folders(options);
  check_spaces(options, spaces);
  const auto about = [&] { return options.caller; };
  const auto memory = with_context(about, [&] {
    return std::make_shared<SwapMemory>(options.files,
                                        io::SwapOptions{.folders = options.folder,
                                                        .bytes = needs.files,
                                                        .block = options.block,
                                                        .depth = depth_of(options, needs),
                                                        .caching = options.direct ? io::Caching::direct : io::Caching::cached},
                                        options.checksum, options.world, options.caller);
  });
  memory->pin(needs.arena);
  memory->compare_sizes(needs);
  for (const std::string& folder : options.folder) {
    if (options.world.rank == 0 && is_in_memory(folder))
      log(LogLevel::warn, options.world,
          fmt::format("{}: '{}' is in memory (tmpfs), so data there take the memory that they should free", options.caller,
                      folder));
  }
  return memory;
}

}  // namespace zt::offload
