// Data that lie in swap files between their uses.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/tier_memory.h"
#include "zt/io/file_system.h"
#include "zt/process/world.h"

namespace zt::offload {

// Where data lie, and how they are read and written.
struct DiskOptions {
  std::string caller = "offload.move";  // for messages
  std::vector<std::string> folder;      // over which the files are striped
  int64_t block = int64_t{4} << 20;     // most bytes of one operation
  std::optional<int> depth;             // operations under way; by default as many as all places in memory have
  bool direct = true;                   // past the page cache
  bool checksum = false;                // compare what is read with what was written
  std::string advice = "add a folder, or let more stay in memory";  // for messages that say that a disk is too small

  World world = {};                            // of this rank, for messages
  std::shared_ptr<io::FileSystem> files = {};  // in which the folders are
};

// Reserves the space of `needs.files` bytes in the folders. Collective over `needs.world`. Throws Misuse if a folder is missing,
// cannot be written, or its disk is too small for all ranks of the machine.
std::shared_ptr<TierMemory> make_swap_memory(const DiskOptions& options, const HomeNeeds& needs);

}  // namespace zt::offload
