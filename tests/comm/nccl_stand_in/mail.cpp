#include "mail.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace zt::test::stand_in {

namespace {

constexpr size_t kRoom = size_t{256} << 10U;  // bytes of a message that travel at once
constexpr std::chrono::seconds kPatience(60);

}  // namespace

// The mailbox of one sender and one receiver. Flags count the parts of messages.
struct Post::Box {
  alignas(64) uint32_t full;
  alignas(64) uint32_t empty;
  alignas(64) uint32_t put, taken;  // what the host of the sender has started to put, and that of the receiver to take
  alignas(64) std::array<char, kRoom> room;
};

struct Post::Shared {
  std::atomic<int> arrived;  // a multiple of the number of ranks after each meeting
  std::array<Box, 1> boxes;  // in truth size * size

  static size_t bytes(int size) {
    return sizeof(Shared) + (static_cast<size_t>(size) * static_cast<size_t>(size) - 1) * sizeof(Box);
  }
};

// The messages of a group to or from one peer, which travel in parts.
class Post::Flow {
 public:
  Flow(const std::vector<Message>& messages, bool sends, int peer) {
    for (const Message& each : messages) {
      if (each.sends == sends && each.peer == peer && each.bytes > 0) left_.push_back(each);
    }
    std::reverse(left_.begin(), left_.end());
  }
  bool done() const { return left_.empty(); }
  void put_part(Box& box, cudaStream_t stream) {
    device().await(&box.empty, box.put, stream);
    part([&](char* data, size_t bytes) { device().copy(box.room.data(), data, bytes, stream); });
    device().set(&box.full, ++box.put, stream);
  }
  void take_part(Box& box, cudaStream_t stream) {
    device().await(&box.full, ++box.taken, stream);
    part([&](char* data, size_t bytes) { device().copy(data, box.room.data(), bytes, stream); });
    device().set(&box.empty, box.taken, stream);
  }

 private:
  template <class Move>
  void part(const Move& move) {
    Message& message = left_.back();
    const size_t bytes = std::min(message.bytes, kRoom);
    move(static_cast<char*>(message.data), bytes);
    message.data = static_cast<char*>(message.data) + bytes;
    message.bytes -= bytes;
    if (message.bytes == 0) left_.pop_back();
  }

  std::vector<Message> left_;  // the first one last
};

Post::Post(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {
  if (size > kMostRanks) throw std::runtime_error("the stand-in for NCCL has mailboxes for 8 ranks");
  const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
  const size_t bytes = Shared::bytes(size);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("no shared memory for " + name_);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + name_);
  shared_ = static_cast<Shared*>(memory);
  device().share(memory, bytes);
  meet("init");
  if (rank == 0) shm_unlink(name_.c_str());
}

Post::~Post() {
  for (void* each : scratch_) device().free(each);
  device().unshare(shared_);
  munmap(shared_, Shared::bytes(size_));
}

Post::Box& Post::box(int from, int to) const {
  return shared_->boxes.data()[static_cast<size_t>(from * size_ + to)];
}

void Post::meet(const char* what) const {
  const int before = shared_->arrived.fetch_add(1);
  const int wanted = (before / size_ + 1) * size_;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (shared_->arrived.load() < wanted) {
    if (std::chrono::steady_clock::now() > end)
      throw std::runtime_error(std::string("a rank did not come to ") + what + " of " + name_);
    std::this_thread::yield();
  }
}

// Every round puts one part for each peer and takes one from each, so a rank never waits for what a peer can only do later.
void Post::exchange(const std::vector<Message>& messages, cudaStream_t stream) {
  std::vector<Flow> out, in;
  for (int peer = 0; peer < size_; ++peer) {
    out.emplace_back(messages, true, peer);
    in.emplace_back(messages, false, peer);
  }
  for (bool again = true; again;) {
    again = false;
    for (int peer = 0; peer < size_; ++peer) {
      Flow& flow = out[static_cast<size_t>(peer)];
      if (!flow.done()) flow.put_part(box(rank_, peer), stream);
    }
    for (int peer = 0; peer < size_; ++peer) {
      Flow& flow = in[static_cast<size_t>(peer)];
      if (!flow.done()) flow.take_part(box(peer, rank_), stream);
    }
    for (const auto* flows : {&out, &in}) again = again || !std::ranges::all_of(*flows, &Flow::done);
  }
}

void* Post::scratch(size_t bytes) {
  if (scratch_.empty() || bytes > scratch_bytes_) {
    scratch_.push_back(device().allocate(std::max<size_t>(bytes, 1)));
    scratch_bytes_ = bytes;
  }
  return scratch_.back();
}

void Post::abandon() {
  for (int peer = 0; peer < size_; ++peer) {
    box(rank_, peer).empty = UINT32_MAX;
    box(peer, rank_).full = UINT32_MAX;
  }
}

}  // namespace zt::test::stand_in
