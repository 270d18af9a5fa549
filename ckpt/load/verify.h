// Whether a checkpoint is what was saved, to the byte.
#pragma once

#include <string>
#include <vector>

#include "format/index.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// Reads all of all files and compares them with their checksums, with as many threads as there are cores. What is wrong, a line
// each, naming file and tensor; empty: nothing.
std::vector<std::string> verify(io::FileSystem& files, const std::string& folder);

}  // namespace zt::ckpt
