#include "files/swap_homes.h"

#include <sys/vfs.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "files/block_sums.h"
#include "files/free_ranges.h"
#include "files/kept_ranges.h"
#include "zt/base/error.h"
#include "zt/base/machine.h"
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

class SwapHomes final : public Homes, public std::enable_shared_from_this<SwapHomes> {
 public:
  SwapHomes(std::shared_ptr<io::FileSystem> files, io::SwapOptions options, bool has_sums)
      : files_(std::move(files)), options_(std::move(options)), has_sums_(has_sums) {
    extents_.emplace_back(*files_, options_, 0, has_sums_);
  }

  void pin(const at::Tensor& arena) { extents_.front().swap.pin(bytes_of(arena)); }

  Work read(Tier tier, int64_t place, at::Tensor to) override {
    check(tier);
    return start(io::IoDirection::read, place, std::move(to));
  }
  Work write(Tier tier, int64_t place, at::Tensor from) override {
    check(tier);
    kept_.await_release(place, from.numel());
    return start(io::IoDirection::write, place, std::move(from));
  }
  std::shared_ptr<KeptBytes> keep(Tier tier, int64_t place, int64_t bytes) override {
    check(tier);
    return std::make_shared<Kept>(shared_from_this(), place, bytes);
  }
  int64_t take(Tier tier, int64_t bytes) override {
    check(tier);
    const int64_t place = free_.take(bytes);
    return place >= 0 ? place : grow(bytes);
  }
  void give_back(Tier, int64_t place, int64_t bytes) override { free_.add(place, bytes); }

 private:
  class Kept final : public KeptBytes {
   public:
    Kept(std::shared_ptr<SwapHomes> homes, int64_t place, int64_t bytes)
        : homes_(std::move(homes)), token_(homes_->kept_.add(place, bytes)) {}
    ~Kept() override { homes_->kept_.remove(token_); }
    void read(int64_t place, at::Tensor to) override { homes_->start(io::IoDirection::read, place, std::move(to)).synchronize(); }
    void release(int64_t place, int64_t bytes) override { homes_->kept_.release(token_, place, bytes); }

   private:
    const std::shared_ptr<SwapHomes> homes_;
    const KeptRanges::Token token_;
  };

  // Keeps the memory that is moved. The swap file outlives all works of a trainer that are waited for; at its end it waits for
  // the others itself.
  class Transfer final : public Work::State {
   public:
    Transfer(SwapHomes& homes, Extent& extent, int64_t place, at::Tensor memory, io::IoDirection direction)
        : homes_(homes), extent_(extent), place_(place), memory_(std::move(memory)), direction_(direction) {
      const std::lock_guard lock(homes_.mutex_);
      const std::span<std::byte> bytes = bytes_of(memory_);
      if (direction_ == io::IoDirection::read) {
        ticket_ = extent_.swap.read(place_, bytes);
      } else {
        if (extent_.sums) extent_.sums->note(place_, bytes);
        ticket_ = extent_.swap.write(place_, bytes);
      }
    }

    bool done() override {
      const std::lock_guard lock(homes_.mutex_);
      return has_ended_ || extent_.swap.is_done(ticket_);
    }
    void wait() override {
      const std::lock_guard lock(homes_.mutex_);
      if (fault_) std::rethrow_exception(fault_);
      if (std::exchange(has_ended_, true)) return;
      try {
        extent_.swap.wait(ticket_);
        if (extent_.sums && direction_ == io::IoDirection::read) homes_.compare(extent_, place_, memory_);
      } catch (...) {
        fault_ = std::current_exception();
        throw;
      }
    }
    void synchronize() override { wait(); }

   private:
    SwapHomes& homes_;
    Extent& extent_;
    const int64_t place_;  // in the extent
    const at::Tensor memory_;
    const io::IoDirection direction_;
    io::SwapFile::Ticket ticket_ = 0;
    bool has_ended_ = false;
    std::exception_ptr fault_;
  };

  static void check(Tier tier) {
    if (tier != Tier::file) fault("data of home={} are moved by the homes of files", word_of(tier));
  }

  Work start(io::IoDirection direction, int64_t place, at::Tensor memory) {
    Extent& extent = extent_at(place);
    return Work(std::make_shared<Transfer>(*this, extent, place - extent.begin, std::move(memory), direction));
  }

  Extent& extent_at(int64_t place) {
    const std::lock_guard lock(mutex_);
    const auto after = std::ranges::upper_bound(extents_, place, {}, &Extent::begin);
    return *std::prev(after);
  }

  // Makes room for bytes that were not known when the first file was made, at least as much as all that was taken so before.
  int64_t grow(int64_t bytes) {
    io::SwapOptions options = options_;
    options.bytes = std::max({bytes, grown_, kLeastGrowth});
    const std::lock_guard lock(mutex_);
    const int64_t begin = extents_.back().end() + io::kSwapAlignment;  // a gap: free ranges of two files do not become one
    extents_.emplace_back(*files_, options, begin, has_sums_);
    grown_ += options.bytes;
    free_.add(begin + bytes, options.bytes - bytes);
    return begin;
  }

  void compare(const Extent& extent, int64_t place, const at::Tensor& read) const {
    const int64_t wrong = extent.sums->first_difference(place, bytes_of(read));
    if (wrong >= 0)
      fault(
          "the swap file in '{}' returned other bytes than were written, in the {} from byte {}: the disk or its memory is damaged, use "
          "another folder and resume from a checkpoint",
          fmt::join(options_.folders, "', '"), kSumBlock, wrong);
  }

  static constexpr int64_t kLeastGrowth = int64_t{64} << 20;

  const std::shared_ptr<io::FileSystem> files_;
  const io::SwapOptions options_;
  const bool has_sums_;
  std::mutex mutex_;            // of the extents: a thread that saves reads them, too
  std::deque<Extent> extents_;  // the first has the bytes of HomeNeeds; a deque, because transfers refer to them
  int64_t grown_ = 0;           // bytes of the others
  FreeRanges free_;             // of these
  KeptRanges kept_;
};

// The bytes that the ranks of a machine are about to write to a folder, and its free space before any of them has begun.
struct Space {
  int64_t needed = 0, free = -1;
  int ranks = 0;
};

// Returns by folder what the ranks of this machine together need there.
std::map<std::string, Space> gather_spaces(const DiskOptions& options, const HomeNeeds& needs) {
  const int64_t share = needs.files / std::ssize(options.folder) + options.block;
  Value::Table mine;
  for (const std::string& folder : options.folder) mine[folder] = Value::List{share, options.files->free_bytes(folder)};
  const Value entry = Value::Table{{"machine", machine_name()}, {"folders", mine}};
  const std::vector<Value> all =
      needs.world ? needs.world->all_gather_values(entry, "reserves space for data that move") : std::vector<Value>{entry};
  std::map<std::string, Space> spaces;
  for (const Value& each : all) {
    const auto& table = *each.get_if<Value::Table>();
    if (*table.at("machine").get_if<std::string>() != machine_name()) continue;
    for (const auto& [folder, numbers] : *table.at("folders").get_if<Value::Table>()) {
      const auto& list = *numbers.get_if<Value::List>();
      Space& space = spaces[folder];
      space.needed += *list[0].get_if<int64_t>();
      space.free = *list[1].get_if<int64_t>();
      ++space.ranks;
    }
  }
  return spaces;
}

void check_spaces(const std::map<std::string, Space>& spaces) {
  for (const auto& [folder, space] : spaces) {
    if (space.free < 0 || space.needed <= space.free) continue;
    misuse(
        "offload.move: the {} of this machine need{} {} in '{}', and its disk has {} left: free space, add a folder, or let more "
        "stay in memory",
        space.ranks == 1 ? "rank" : fmt::format("{} ranks", space.ranks), space.ranks == 1 ? "s" : "", human_bytes(space.needed),
        folder, human_bytes(space.free));
  }
}

void check_folders(const DiskOptions& options) {
  for (const std::string& folder : options.folder) {
    const io::EntryKind kind = options.files->kind_of(folder);
    if (kind == io::EntryKind::missing)
      misuse("offload.move: the folder '{}' does not exist: make it on the disk that is to hold the data", folder);
    if (kind != io::EntryKind::folder)
      misuse("offload.move: '{}' is {}: give a folder on the disk that is to hold the data", folder, io::phrase_for(kind));
  }
}

bool is_in_memory(const std::string& folder) {
  constexpr auto kTmpfs = 0x01021994, kRamfs = static_cast<int>(0x858458f6);
  struct statfs status {};
  if (statfs(folder.c_str(), &status) != 0) return false;
  return static_cast<int>(status.f_type) == kTmpfs || static_cast<int>(status.f_type) == kRamfs;
}

// As many operations as all places in memory have.
int depth_of(const DiskOptions& options, const HomeNeeds& needs) {
  if (options.depth) return *options.depth;
  int64_t operations = 0;
  for (const at::Tensor& slot : needs.slots) operations += slot.numel() > 0 ? slot.numel() / options.block + 2 : 0;
  return static_cast<int>(std::clamp<int64_t>(operations, 8, 1024));
}

}  // namespace

std::shared_ptr<Homes> make_swap_homes(const DiskOptions& options, const HomeNeeds& needs) {
  const auto spaces = gather_spaces(options, needs);
  if (needs.device.type() != at::kCPU)
    misuse("offload.move moves data of ranks that compute on the CPU: this one computes on {}", needs.device.str());
  check_folders(options);
  check_spaces(spaces);
  auto homes = std::make_shared<SwapHomes>(options.files,
                                           io::SwapOptions{.folders = options.folder,
                                                           .bytes = needs.files,
                                                           .block = options.block,
                                                           .depth = depth_of(options, needs),
                                                           .caching = options.direct ? io::Caching::direct : io::Caching::cached},
                                           options.checksum);
  if (needs.arena.defined()) homes->pin(needs.arena);
  for (const std::string& folder : options.folder) {
    if (options.world.rank == 0 && is_in_memory(folder))
      log(LogLevel::warn, options.world,
          fmt::format("offload.move: '{}' is in memory (tmpfs), so data there take the memory that they should free", folder));
  }
  return homes;
}

}  // namespace zt::offload
