// Reads checkpoints: what objects hold on this rank, out of whatever layout it was saved from.
#pragma once

#include <string>

#include "folder/together.h"
#include "format/index.h"
#include "reshard/contents.h"
#include "reshard/matching.h"
#include "zt/io/file_system.h"

namespace zt::ckpt {

// What a checkpoint's master file says. Fault, naming the file, when it is missing, damaged or none of ours.
Index read_index(io::FileSystem& files, const std::string& folder);

// Gives `objects` what the checkpoint in `folder` holds under their names. Collective. Whatever does not match is found before
// anything is changed: a Misuse, equal on all ranks, lists it by groups. Every block that is read is compared with its checksum;
// a Fault names file and tensor, and the objects hold something of both states then.
// Returns all values of the checkpoint, by name.
Value::Table load(io::FileSystem& files, const Ranks& ranks, const std::string& folder, const Objects& objects,
                  const MatchOptions& options);

}  // namespace zt::ckpt
