#include "box_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>

#include "zt/process/trace.h"

namespace zt::comm {

namespace {

Track read_track(const RingMemory& ring) {
  const RingTitle title = ring.title.load();
  Track track{.axis = title.axis.data(), .backend = title.backend.data(), .copy = title.copy, .ranks = {}, .records = {}};
  const auto named = std::min<size_t>(static_cast<size_t>(std::max(0, title.size)), kMostMembers);
  track.ranks.assign(title.ranks.begin(), title.ranks.begin() + static_cast<std::ptrdiff_t>(named));
  const uint64_t added = ring.added.load(std::memory_order_acquire);
  track.is_open = ring.state.load(std::memory_order_acquire) == RingMemory::open;
  track.collectives = ring.collectives.load(std::memory_order_relaxed);
  for (uint64_t number = added > kRecords ? added - kRecords : 0; number < added; ++number) {
    const CallRecord record = ring.records[number % kRecords].load();
    if (record.number == number) track.records.push_back(record);
  }
  return track;
}

// Reads the state in /proc/PID/stat, "4711 (name) T ...": T means stopped by a signal, t by a debugger.
bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(") ");
  const char state = name_end == std::string::npos || name_end + 2 >= line.size() ? ' ' : line[name_end + 2];
  return state == 'T' || state == 't';
}

}  // namespace

BoxMemory* map_box(int descriptor, BoxAccess access) {
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  const int protection = access == BoxAccess::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* place = mmap(nullptr, sizeof(BoxMemory), protection, flags, descriptor, 0);
  return place == MAP_FAILED ? nullptr : static_cast<BoxMemory*>(place);
}

void unmap_box(BoxMemory* memory) {
  munmap(memory, sizeof(BoxMemory));
}

int make_box_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return -1;
  if (ftruncate(descriptor, sizeof(BoxMemory)) == 0 && take_ring_pages(descriptor, 0)) return descriptor;
  const int reason = errno;
  close(descriptor);
  unlink(path.c_str());
  errno = reason;
  return -1;
}

bool take_ring_pages(int descriptor, size_t ring) {
  errno = posix_fallocate(descriptor, 0, static_cast<off_t>(offsetof(BoxMemory, rings) + (ring + 1) * sizeof(RingMemory)));
  return errno == 0;
}

Flight read_box(const BoxMemory& memory) {
  const BoxTitle title = memory.title.load();
  Flight flight{.rank = title.rank, .world_size = title.world_size, .process = title.process, .end = {}, .tracks = {}};
  flight.is_alive = title.process == getpid() || kill(title.process, 0) == 0 || errno == EPERM;
  flight.is_stopped = flight.is_alive && is_stopped(title.process);
  flight.end = memory.end.load().why.data();
  flight.read_ns = now_ns();
  flight.unix_offset_ns = title.unix_offset_ns;
  const uint64_t used = std::min<uint64_t>(memory.rings_used.load(std::memory_order_acquire), kMostRings);
  for (uint64_t i = 0; i < used; ++i) {
    if (memory.rings[i].state.load(std::memory_order_acquire) != RingMemory::unused)
      flight.tracks.push_back(read_track(memory.rings[i]));
  }
  return flight;
}

}  // namespace zt::comm
