// Whether the folders of data exist, and have room for all ranks of a machine.
#pragma once

#include <map>
#include <string>

#include "files/swap_memory.h"

namespace zt::offload {

// The bytes that the ranks of a machine are about to write to a folder, and its free space before any of them has begun.
struct Space {
  int64_t needed = 0, free = -1;
  int ranks = 0;
};

// Returns by folder what the ranks of this machine together need there. Collective over `needs.world`.
std::map<std::string, Space> gather_spaces(const DiskOptions& options, const HomeNeeds& needs);
// Throw Misuse if a disk has too little space, or if something is no folder.
void check_spaces(const DiskOptions& options, const std::map<std::string, Space>& spaces);
void check_folders(const DiskOptions& options);
// Returns whether the folder lies in memory (tmpfs).
bool is_in_memory(const std::string& folder);

}  // namespace zt::offload
