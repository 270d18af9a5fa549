// Plain data in memory that other threads and processes read while it is written.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace zt::comm {

// Values are copied word by word. A reader may see some words of one value and some of the next, but never half a word.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

  void store(const T& value) {
    std::array<uint64_t, kWords> words;
    std::memcpy(words.data(), &value, sizeof(T));
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
  }
  T load() const {
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }
  // Returns the member of 64 bits at `offset` in T.
  std::atomic<uint64_t>& word(size_t offset) { return words_[offset / sizeof(uint64_t)]; }

 private:
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace zt::comm
