#include "black_box.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "box_memory.h"
#include "zt/base/error.h"
#include "zt/process/log.h"
#include "zt/process/trace.h"

namespace zt::comm {

namespace {

constexpr const char* kFilePrefix = "ztoolkit-flight-";

int64_t unix_offset_ns() {
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(unix_time).count() - now_ns();
}

std::string box_path(int rank) {
  return fmt::format("{}/{}{}", session_folder(), kFilePrefix, rank);
}

// Calls use(box) if `path` is the whole file of a box.
template <class Use>
void with_box(const std::string& path, Use use) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  const bool is_whole = lseek(descriptor, 0, SEEK_END) == static_cast<off_t>(sizeof(BoxMemory));
  BoxMemory* memory = is_whole ? map_box(descriptor, BoxAccess::read) : nullptr;
  if (memory) {
    if (memory->title.load().magic == kBoxMagic) use(*memory);
    unmap_box(memory);
  }
  close(descriptor);
}

}  // namespace

std::shared_ptr<BlackBox> BlackBox::create(const World& world) {
  const bool is_shared = world.launch == Launch::mpi && !session_folder().empty();
  const int descriptor = is_shared ? make_box_file(box_path(world.rank)) : -1;
  if (is_shared && descriptor < 0) {
    log(LogLevel::warn, world,
        fmt::format("other ranks cannot read the flight recorder of rank {}: {}: {}", world.rank, box_path(world.rank),
                    std::strerror(errno)));
  }
  BoxMemory* memory = map_box(descriptor, BoxAccess::write);
  if (!memory) fault("cannot map {} bytes for the flight recorder: {}", sizeof(BoxMemory), std::strerror(errno));
  return std::shared_ptr<BlackBox>(new BlackBox(memory, descriptor, world));
}

BlackBox::BlackBox(BoxMemory* memory, int descriptor, const World& world)
    : memory_(memory), rank_(world.rank), descriptor_(descriptor) {
  BoxTitle title;
  title.unix_offset_ns = unix_offset_ns();
  title.rank = world.rank;
  title.world_size = world.size;
  title.process = getpid();
  memory_->title.store(title);
}

BlackBox::~BlackBox() {
  unmap_box(memory_);
  if (descriptor_ >= 0) close(descriptor_);
}

std::shared_ptr<Ring> BlackBox::open_ring(const Group& group, const std::string& backend) {
  const std::lock_guard lock(mutex_);
  const int copy = copies_[fmt::format("{}:{}", group.name, fmt::join(group.ranks, ","))]++;
  return std::make_shared<Ring>(free_ring(), shared_from_this(), group, backend, copy);
}

// Returns a ring that was never used, else one whose communicator is closed.
RingMemory& BlackBox::free_ring() {
  const uint64_t used = memory_->rings_used.load(std::memory_order_relaxed);
  if (used < kMostRings) {
    if (descriptor_ >= 0 && !take_ring_pages(descriptor_, used))
      fault("no room in {} for the flight recorder of another communicator: {}", session_folder(), std::strerror(errno));
    memory_->rings_used.store(used + 1, std::memory_order_release);
    return memory_->rings[used];
  }
  for (RingMemory& ring : memory_->rings) {
    if (ring.state.load(std::memory_order_relaxed) == RingMemory::closed) return ring;
  }
  misuse("this rank has {} communicators at once, and the flight recorder has no room for more: is `duplicate` called in a loop?",
         kMostRings);
}

void BlackBox::set_end(const std::string& why) {
  const std::lock_guard lock(mutex_);
  BoxEnd end = memory_->end.load();
  if (end.why[0] != 0) return;
  std::memcpy(end.why.data(), why.data(), std::min(why.size(), end.why.size() - 1));
  memory_->end.store(end);
}

std::string BlackBox::end() const {
  return memory_->end.load().why.data();
}

Flight BlackBox::read() const {
  return read_box(*memory_);
}

std::vector<Flight> BlackBox::read_all() {
  std::vector<Flight> flights;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(session_folder(), error)) {
    if (!entry.path().filename().string().starts_with(kFilePrefix)) continue;
    with_box(entry.path(), [&](const BoxMemory& memory) { flights.push_back(read_box(memory)); });
  }
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) { return a.rank < b.rank; });
  return flights;
}

std::vector<Flight> BlackBox::read_ended(std::span<const int> world_ranks, std::string_view why) {
  std::vector<Flight> flights;
  for (const int rank : world_ranks) {
    with_box(box_path(rank), [&](const BoxMemory& memory) {
      if (memory.end.load().why.data() == why) flights.push_back(read_box(memory));
    });
  }
  return flights;
}

std::string BlackBox::end_of(int world_rank) {
  std::string end;
  if (session_folder().empty()) return end;
  with_box(box_path(world_rank), [&](const BoxMemory& memory) { end = memory.end.load().why.data(); });
  return end;
}

std::shared_ptr<Ring> open_ring(const std::shared_ptr<BlackBox>& box, const Group& group, const std::string& backend) {
  return box ? box->open_ring(group, backend) : Ring::make_private(group, backend);
}

}  // namespace zt::comm
