// What makes an index of a checkpoint wrong, whoever made it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "index.h"

namespace zt::ckpt {

constexpr size_t kLongestName = 1024;  // bytes of a name of a tensor or value as it stands in the file
constexpr size_t kMostDims = 32;       // HDF5's limit
constexpr int kDeepestValue = 64;      // tables and lists inside each other

// "shards/rank_00003.h5".
std::string shard_file(int64_t rank);
// True for what shard_file gives, for any rank: no other file may a master name.
bool is_shard_file(std::string_view file);

// What is wrong first of the names: missing, doubled, or in each other's way. Nothing: all is well.
std::optional<std::string> problem_of_names(const Index& index);

// What is wrong first: names that are missing, doubled or in each other's way, shapes, regions outside them, elements that are
// stored twice or not at all (by their number), bytes outside the shard's file, checksums. Nothing: all is well.
std::optional<std::string> problem_of(const Index& index);

}  // namespace zt::ckpt
