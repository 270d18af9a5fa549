// Reads and writes files that fit into memory, each by one operation through the page cache.
//
// Every function throws Fault when the file system fails: the message names the file, the action, the reason and what to do.
// Threads: a call runs on the calling thread. Calls on different files may run at the same time.
// To replace a file that exists, use replace_file of atomic_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zt/io/file_system.h"

namespace zt::io {

// Returns the size of the file in bytes.
int64_t file_bytes(FileSystem& files, const std::string& path);

// Returns the whole file. Throws: Fault, also if the file has more than `limit` bytes.
std::vector<std::byte> read_small(FileSystem& files, const std::string& path, int64_t limit);

// Creates the file with the content `bytes` and syncs it. Its name survives a crash of the machine only after a sync_folder of
// its folder. Throws: Fault, also if the name exists. After any other error the part that was written stays on the disk.
void write_small(FileSystem& files, const std::string& path, std::span<const std::byte> bytes);

}  // namespace zt::io
