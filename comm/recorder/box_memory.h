// How a black box lies in memory and in its file.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "flight.h"
#include "ring.h"
#include "shared.h"

namespace zt::comm {

constexpr size_t kMostRings = 1024;  // at one time; pages that are not used are never there
constexpr uint64_t kBoxMagic = 0x7a74626f78000001;

struct BoxTitle {
  uint64_t magic = kBoxMagic;
  int64_t unix_offset_ns = 0;
  int32_t rank = 0, world_size = 1, process = 0, unused = 0;
};

struct BoxEnd {
  std::array<char, 512> why{};
};

// All bytes zero: an empty box.
struct BoxMemory {
  Shared<BoxTitle> title;
  Shared<BoxEnd> end;
  std::atomic<uint64_t> rings_used;
  std::array<RingMemory, kMostRings> rings;
};

enum class Access : uint8_t { read, write };

// descriptor -1: fresh memory of the process. nullptr, with errno, when that fails. The caller calls unmap_box.
BoxMemory* map_box(int descriptor, Access access);
void unmap_box(BoxMemory* memory);

// An empty file for a box. -1, with errno, when it cannot be made.
int make_box_file(const std::string& path);
// Makes room for ring `ring` in the file: a full disk is found here, and not by a write into the mapping, which would be killed.
bool take_ring_pages(int descriptor, size_t ring);

Flight read_box(const BoxMemory& memory);

}  // namespace zt::comm
