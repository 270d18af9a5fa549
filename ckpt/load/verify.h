// Verifies every byte of a checkpoint.
#pragma once

#include <string>
#include <vector>

#include "format/index.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// Reads all files completely and compares them with their checksums, with as many threads as there are cores. Returns one line
// per error, which names file and tensor; none if all bytes are as saved.
std::vector<std::string> verify(io::FileSystem& files, const std::string& folder);

}  // namespace zt::ckpt
