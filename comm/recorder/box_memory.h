// The layout of a black box in memory and in its file.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "flight.h"
#include "ring.h"
#include "shared.h"

namespace zt::comm {

constexpr size_t kMostRings = 1024;  // at one time; pages of unused rings are never allocated
constexpr uint64_t kBoxMagic = 0x7a74626f78000001;

struct BoxTitle {
  uint64_t magic = kBoxMagic;
  int64_t unix_offset_ns = 0;
  int32_t rank = 0, world_size = 1, process = 0, unused = 0;
};

struct BoxEnd {
  std::array<char, 512> why{};
};

// All bytes zero means an empty box.
struct BoxMemory {
  Shared<BoxTitle> title;
  Shared<BoxEnd> end;
  std::atomic<uint64_t> rings_used;
  std::array<RingMemory, kMostRings> rings;
};

enum class BoxAccess : uint8_t { read, write };

// Maps the file of a box, or new memory of the process if descriptor is -1. Returns null, with errno, on failure. The caller must
// call unmap_box.
BoxMemory* map_box(int descriptor, BoxAccess access);
void unmap_box(BoxMemory* memory);

// Makes the file of an empty box. Returns its descriptor, or -1, with errno, on failure.
int make_box_file(const std::string& path);
// Allocates the pages of ring `ring` in the file. Returns false, with errno, on failure. So a full disk is an error here; found
// by a write to the mapping, it would kill the process.
bool take_ring_pages(int descriptor, size_t ring);

Flight read_box(const BoxMemory& memory);

}  // namespace zt::comm
