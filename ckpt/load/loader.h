// Loads checkpoints into objects, whatever layout they were saved from, and verifies them.
#pragma once

#include <string>
#include <vector>

#include "folder/together.h"
#include "format/index.h"
#include "matching.h"
#include "reshard/contents.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// Returns the content of a checkpoint's master file. Throws a Fault, naming the file, if it is missing, damaged or foreign.
MasterIndex read_index(io::FileSystem& files, const std::string& folder);

// Loads the checkpoint in `folder` into `objects`, by name. Collective. Names are compared before anything is changed: Misuse,
// equal on all ranks, lists those that do not match, by groups. Every block that is read is compared with its checksum. A Fault
// names file and tensor; after it, the objects hold a mixture of both states.
// Returns the loaded values, by their names in the objects.
Value::Table load(io::FileSystem& files, const Ranks& ranks, const std::string& folder, const Objects& objects,
                  const MatchOptions& options);

// Reads all files of a checkpoint completely and compares them with their checksums, with as many threads as there are cores.
// Returns one line per error, which names file and tensor; none if all bytes are as saved.
std::vector<std::string> verify(io::FileSystem& files, const std::string& folder);

}  // namespace zt::ckpt
