// The master file of a checkpoint as bytes. FORMAT.md has the grammar.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "index.h"

namespace zt::ckpt {

// The bytes of checkpoint.h5. Equal indices give equal bytes. Misuse, saying which tensor or value it is, when the index
// contradicts itself (problem_of) or holds what a checkpoint cannot.
std::vector<std::byte> make_master(const Index& index);

// What make_master was given, out of the bytes of the file at `path`. Every byte is checked against the file's checksum before
// libhdf5 sees it, and what is read against the rest of it and the file's size before it is used. Opens no file. Fault, naming
// `path` and what in it is wrong: a foreign, damaged or contradictory file, or a version that this program does not read.
Index read_master(std::span<const std::byte> file, const std::string& path);

// Checks the first bytes of that file, kUserBlock or all of a shorter one, before the rest of its `size` bytes is read. Throws:
// Fault as read_master.
void check_master_start(std::span<const std::byte> start, int64_t size, const std::string& path);

}  // namespace zt::ckpt
