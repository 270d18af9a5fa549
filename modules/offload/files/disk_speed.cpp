#include "files/disk_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>

#include "zt/base/error.h"
#include "zt/io/aligned_memory.h"

namespace zt::offload {

namespace {

using Clock = std::chrono::steady_clock;

// Moves blocks of a swap file, `depth` at a time. Each block begins and ends with its number.
class BlockRunner {
 public:
  BlockRunner(io::FileSystem& files, const DiskTest& test)
      : block_(test.block),
        depth_(test.depth),
        blocks_(std::max((test.size + test.block - 1) / test.block, 4 * test.depth) / 2 * 2),
        memory_(depth_ * block_),
        swap_(files, {.folders = test.folder,
                      .bytes = blocks_ * block_,
                      .block = block_,
                      .depth = static_cast<int>(depth_),
                      .caching = test.direct ? io::Caching::direct : io::Caching::cached}) {
    fill({memory_.data(), static_cast<size_t>(depth_ * block_)});
    is_pinned_ = swap_.pin({memory_.data(), static_cast<size_t>(depth_ * block_)});
  }

  bool is_direct() const { return swap_.is_direct(); }
  bool is_pinned() const { return is_pinned_; }
  int64_t blocks() const { return blocks_; }

  // Moves at least `least` blocks, and goes on for `seconds`. is_write(i): whether the i-th one is written; its number is
  // place(i). Returns bytes per second.
  template <class IsWrite, class Place>
  double run(int64_t least, double seconds, const IsWrite& is_write, const Place& place) {
    const Clock::time_point begin = Clock::now(),
                            end = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    int64_t started = 0, finished = 0;
    const auto finish = [&] {
      const int64_t lane = finished % depth_, number = place(finished);
      swap_.wait(tickets_[static_cast<size_t>(lane)]);
      if (!is_write(finished)) check(lane, number);
      ++finished;
    };
    tickets_.resize(static_cast<size_t>(depth_));
    while (started < least || Clock::now() < end) {
      if (started - finished == depth_) finish();
      const int64_t lane = started % depth_, number = place(started);
      const std::span<std::byte> memory = memory_of(lane);
      if (is_write(started)) mark(lane, number);
      tickets_[static_cast<size_t>(lane)] =
          is_write(started) ? swap_.write(number * block_, memory) : swap_.read(number * block_, memory);
      ++started;
    }
    while (finished < started) finish();
    return static_cast<double>(started * block_) / std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  // Fills memory with numbers that no disk can compress.
  static void fill(std::span<std::byte> memory) {
    std::mt19937_64 random(1);
    for (size_t at = 0; at + sizeof(uint64_t) <= memory.size(); at += sizeof(uint64_t)) {
      const uint64_t number = random();
      std::memcpy(memory.data() + at, &number, sizeof(number));
    }
  }
  std::span<std::byte> memory_of(int64_t lane) const { return {memory_.data() + lane * block_, static_cast<size_t>(block_)}; }
  void mark(int64_t lane, int64_t number) const {
    const std::span<std::byte> memory = memory_of(lane);
    std::memcpy(memory.data(), &number, sizeof(number));
    std::memcpy(memory.data() + memory.size() - sizeof(number), &number, sizeof(number));
  }
  void check(int64_t lane, int64_t number) const {
    const std::span<std::byte> memory = memory_of(lane);
    for (const std::byte* at : {memory.data(), memory.data() + memory.size() - sizeof(number)}) {
      if (std::memcmp(at, &number, sizeof(number)) != 0)
        fault("the disk returned other bytes than were written, in block {} of a swap file in '{}': do not use it", number,
              swap_.options().folders[static_cast<size_t>(number) % swap_.options().folders.size()]);
    }
  }

  const int64_t block_, depth_, blocks_;
  const io::AlignedMemory memory_;
  io::SwapFile swap_;  // declared after the memory, which it uses until its end
  bool is_pinned_ = false;
  std::vector<io::SwapFile::Ticket> tickets_;  // by lane
};

}  // namespace

DiskSpeed measure_disk(io::FileSystem& files, const DiskTest& test) {
  BlockRunner runner(files, test);
  const int64_t blocks = runner.blocks(), half = blocks / 2;
  const auto always = [](int64_t) { return true; };
  const auto never = [](int64_t) { return false; };
  const auto around = [&](int64_t i) { return i % blocks; };
  runner.run(blocks, 0, always, around);  // disks are slower where nothing was written before
  DiskSpeed speed;
  speed.write = runner.run(0, test.seconds, always, around);
  speed.read = runner.run(0, test.seconds, never, around);
  speed.mixed = runner.run(
      0, test.seconds, [](int64_t i) { return i % 2 == 1; }, [&](int64_t i) { return i % 2 * half + i / 2 % half; });
  speed.is_direct = runner.is_direct();
  speed.is_pinned = runner.is_pinned();
  return speed;
}

}  // namespace zt::offload
