// Measures how fast swap files are read and written.
#pragma once

#include <string>
#include <vector>

#include "zt/io/swap_file.h"

namespace zt::offload {

struct DiskTest {
  std::vector<std::string> folder;
  int64_t size = int64_t{1} << 30;   // bytes of the swap file, rounded up to whole blocks, at least four per operation under way
  int64_t block = int64_t{4} << 20;  // bytes of an operation
  int64_t depth = 8;                 // operations under way
  bool direct = true;                // without the page cache
  double seconds = 1;                // of each of the three measurements
};

struct DiskSpeed {
  double read = 0, write = 0;  // bytes per second
  double mixed = 0;            // bytes per second read and written, as many of each at the same time
  bool is_direct = false;      // whether the file system has direct I/O
  bool is_pinned = false;      // whether the memory was pinned
};

// Throws: Fault if a file cannot be created, read or written, and if what was read is not what was written.
DiskSpeed measure_disk(io::FileSystem& files, const DiskTest& test);

}  // namespace zt::offload
