// Checks the index of a checkpoint, before it is saved and after it was read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "index.h"

namespace zt::ckpt {

constexpr size_t kLongestName = 1024;  // bytes of a tensor's or value's name, encoded as in the file
constexpr size_t kMostDims = 32;       // HDF5's limit
constexpr int kDeepestValue = 64;      // tables and lists inside each other

// Returns "shards/rank_00003.h5".
std::string shard_file(int64_t rank);
// True if shard_file gives this name for some rank. A master may name no other file.
bool is_shard_file(std::string_view file);

// Returns the first naming error, or nullopt: a name that is empty, too long, reserved or used twice, or one below another.
std::optional<std::string> problem_of_names(const MasterIndex& index);

// Returns the first error, or nullopt. Checks names, shapes, regions inside shapes, the number of elements stored per tensor,
// bytes inside the shard's file, and the number of checksums.
std::optional<std::string> problem_of(const MasterIndex& index);

}  // namespace zt::ckpt
