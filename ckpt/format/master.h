// The master file of a checkpoint as bytes. FORMAT.md has the grammar.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "index.h"

namespace zt::ckpt {

// Returns the bytes of checkpoint.h5. Equal indices give equal bytes. Throws Misuse, naming the tensor or value, if the index
// contradicts itself (problem_of) or has a value that a checkpoint cannot hold.
std::vector<std::byte> make_master(const MasterIndex& index);

// Returns the index that make_master was given, from the bytes of the file at `path`. Opens no file. All bytes are compared with
// the file's checksum before libhdf5 sees them. The index is checked (problem_of), and no read exceeds the file's size. Throws a
// Fault, naming `path` and the problem, for a foreign, damaged or contradictory file or an unknown version.
MasterIndex read_master(std::span<const std::byte> file, const std::string& path);

// Checks the first bytes of that file before the rest of its `size` bytes is read. Requires kUserBlock bytes, or all of a shorter
// file. Throws a Fault like that of read_master.
void check_master_start(std::span<const std::byte> start, int64_t size, const std::string& path);

}  // namespace zt::ckpt
