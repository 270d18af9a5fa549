#include "files/swap_homes.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

#include "files/block_sums.h"
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

class SwapHomes final : public Homes {
 public:
  SwapHomes(std::shared_ptr<io::FileSystem> files, io::SwapOptions options, bool has_sums)
      : files_(std::move(files)), swap_(*files_, std::move(options)) {
    if (has_sums) sums_.emplace(swap_.options().bytes);
  }

  io::SwapFile& swap() { return swap_; }

  Work read(Tier tier, int64_t place, at::Tensor to) override {
    check(tier);
    const auto ticket = swap_.read(place, bytes_of(to));
    return Work(std::make_shared<Transfer>(*this, ticket, std::move(to), place, io::IoDirection::read));
  }
  Work write(Tier tier, int64_t place, at::Tensor from) override {
    check(tier);
    if (sums_) sums_->note(place, bytes_of(from));
    const auto ticket = swap_.write(place, bytes_of(from));
    return Work(std::make_shared<Transfer>(*this, ticket, std::move(from), place, io::IoDirection::write));
  }

 private:
  // Keeps the memory that is moved. The swap file outlives all works of a trainer that are waited for; at its end it waits for
  // the others itself.
  class Transfer final : public Work::State {
   public:
    Transfer(SwapHomes& homes, io::SwapFile::Ticket ticket, at::Tensor memory, int64_t place, io::IoDirection direction)
        : homes_(homes), ticket_(ticket), memory_(std::move(memory)), place_(place), direction_(direction) {}

    bool done() override { return has_ended_ || homes_.swap_.is_done(ticket_); }
    void wait() override {
      if (fault_) std::rethrow_exception(fault_);
      if (std::exchange(has_ended_, true)) return;
      try {
        homes_.swap_.wait(ticket_);
        if (homes_.sums_ && direction_ == io::IoDirection::read) homes_.compare(place_, memory_);
      } catch (...) {
        fault_ = std::current_exception();
        throw;
      }
    }
    void synchronize() override { wait(); }

   private:
    SwapHomes& homes_;
    const io::SwapFile::Ticket ticket_;
    const at::Tensor memory_;
    const int64_t place_;
    const io::IoDirection direction_;
    bool has_ended_ = false;
    std::exception_ptr fault_;
  };

  static void check(Tier tier) {
    if (tier != Tier::file) fault("data of home={} are moved by the homes of files", word_of(tier));
  }

  void compare(int64_t place, const at::Tensor& read) const {
    const int64_t wrong = sums_->first_difference(place, bytes_of(read));
    if (wrong >= 0)
      fault(
          "the swap file in '{}' returned other bytes than were written, in the {} from byte {}: the disk or its memory is damaged, use "
          "another folder and resume from a checkpoint",
          fmt::join(swap_.options().folders, "', '"), kSumBlock, wrong);
  }

  const std::shared_ptr<io::FileSystem> files_;
  std::optional<BlockSums> sums_;
  io::SwapFile swap_;
};

std::string machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

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
  const Value entry = Value::Table{{"machine", machine()}, {"folders", mine}};
  const std::vector<Value> all =
      needs.world ? needs.world->all_gather_values(entry, "reserves space for data that move") : std::vector<Value>{entry};
  std::map<std::string, Space> spaces;
  for (const Value& each : all) {
    const auto& table = *each.get_if<Value::Table>();
    if (*table.at("machine").get_if<std::string>() != machine()) continue;
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
  if (needs.arena.defined()) homes->swap().pin(bytes_of(needs.arena));
  for (const std::string& folder : options.folder) {
    if (options.world.rank == 0 && is_in_memory(folder))
      log(LogLevel::warn, options.world,
          fmt::format("offload.move: '{}' is in memory (tmpfs), so data there take the memory that they should free", folder));
  }
  return homes;
}

}  // namespace zt::offload
