// Which blocks of a cache of keys and values are free, and how many hold each of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace zt::infer {

// A block has room for the keys and values of a fixed number of tokens at every position of the model. Sequences hold blocks, and
// so does the tree of prefixes. A block that several hold is full: only its single holder may write to it. Threads: one at a
// time.
class CacheBlocks {
 public:
  explicit CacheBlocks(int32_t count);

  // Takes a free block, with one holder. Returns nothing if there is none.
  std::optional<int32_t> take();
  void hold(int32_t block) { ++holders_[static_cast<size_t>(block)]; }
  // Ends one hold. The block is free after the last one.
  void release(int32_t block);

  int32_t count() const { return static_cast<int32_t>(holders_.size()); }
  int32_t free() const { return static_cast<int32_t>(free_.size()); }
  int32_t holders(int32_t block) const { return holders_[static_cast<size_t>(block)]; }

 private:
  std::vector<int32_t> holders_, free_;  // by block; a stack
};

}  // namespace zt::infer
