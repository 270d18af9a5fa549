// Remembers the tokens of words.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data::huggingface {

// Holds at most 24,576 words of at most 255 bytes, and forgets all of them when it is full. Threads: one at a time.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

  // Returns the tokens of a word, or nullopt if they are not known. The result is valid until the next call of `add`.
  std::optional<std::span<const int32_t>> find(std::string_view word) const;
  void add(std::string_view word, std::span<const int32_t> tokens);

 private:
  static constexpr size_t kSlots = 1 << 15;

  struct Slot {
    uint64_t hash = 0;
    uint32_t word = 0, tokens = 0;            // where they start in words_ and tokens_
    uint16_t word_size = 0, token_count = 0;  // word_size is 0: the slot is free
  };

  size_t slot_of(std::string_view word, uint64_t hash) const;

  std::vector<Slot> slots_;
  std::string words_;
  std::vector<int32_t> tokens_;
  size_t used_ = 0;
};

// The caches of one tokenizer: each call that encodes borrows one. There are as many as calls that ran at the same time, and at
// most 64 are kept. Threads: any.
class WordCachePool {
 public:
  std::unique_ptr<WordCache> borrow();
  void give_back(std::unique_ptr<WordCache> cache);

 private:
  static constexpr size_t kMost = 64;

  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> free_;
};

}  // namespace zt::data::huggingface
