// The merges of a BPE model: pairs of tokens that become one token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zt::data::huggingface {

// Threads: any may read while no thread adds.
class MergeTable {
 public:
  struct Merge {
    uint64_t pair = kEmpty;
    uint32_t rank = 0;  // merges of lower rank come first
    int32_t token = 0;  // what the pair becomes
  };

  explicit MergeTable(size_t merges);

  // Adds a merge. For a pair that is there, the new merge replaces the old one. At most as many as the constructor was told.
  void add(int32_t left, int32_t right, uint32_t rank, int32_t token);
  // Returns nullptr if the tokens do not merge.
  const Merge* find(int32_t left, int32_t right) const {
    const Merge& merge = merges_[slot_of(pair_of(left, right))];
    return merge.pair == kEmpty ? nullptr : &merge;
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;  // ids are below 2^24

  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t pair) const {
    size_t slot = (pair * 0x9E3779B97F4A7C15) >> shift_;
    while (merges_[slot].pair != kEmpty && merges_[slot].pair != pair) slot = (slot + 1) & (merges_.size() - 1);
    return slot;
  }

  int shift_;
  std::vector<Merge> merges_;
};

}  // namespace zt::data::huggingface
