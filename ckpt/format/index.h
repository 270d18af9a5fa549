// The content of a checkpoint's master file: its tensors, and where in which shard their bytes lie.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "zt/base/value.h"
#include "zt/reshard/region.h"

namespace zt::ckpt {

// A part of a tensor that lies contiguously in a shard: the elements of `region` in its order, little-endian.
struct SavedPiece {
  int32_t shard = 0;                // index into MasterIndex::shards
  int64_t offset = 0;               // byte in the shard's file; 0 if nothing is stored (count = 0)
  Region region;                    // at least one box; a tensor without dims has one box without dims
  std::vector<uint64_t> checksums;  // xxh3 of each block of kChecksumBlock bytes
};

struct SavedTensor {
  std::string name;  // "model/blocks.0.attention.qkv.weight"
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  // A table of nil, booleans, numbers, strings, and lists of booleans, of numbers or of strings.
  Value attributes = Value::Table();
  std::vector<SavedPiece> pieces = {};  // each element is in exactly one of them
};

struct SavedShard {
  std::string file;   // "shards/rank_00003.h5"
  int64_t bytes = 0;  // the file's size
  uint64_t rest = 0;  // xxh3 of all bytes of the file outside datasets' data, in the file's order
};

struct MasterIndex {
  std::vector<SavedShard> shards;
  std::vector<SavedTensor> tensors;
  // A table: "trainer/step" -> nil, booleans, numbers (NaN and infinities too), strings, lists and tables of them.
  Value values = Value::Table();
};

}  // namespace zt::ckpt
