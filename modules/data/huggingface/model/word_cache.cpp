#include "huggingface/model/word_cache.h"

#include "huggingface/model/byte_hash.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kLongestWord = 255;     // bytes
constexpr size_t kMostTokens = 1023;     // of one word
constexpr size_t kMostStored = 8 << 20;  // bytes of words, and number of tokens

}  // namespace

size_t WordCache::slot_of(std::string_view word, uint64_t hash) const {
  size_t at = hash & (kSlots - 1);
  for (; slots_[at].word_size != 0; at = (at + 1) & (kSlots - 1)) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.word_size) == word) break;
  }
  return at;
}

std::optional<std::span<const int32_t>> WordCache::find(std::string_view word) const {
  if (word.size() > kLongestWord) return std::nullopt;
  const Slot& slot = slots_[slot_of(word, hash_bytes(word))];
  if (slot.word_size == 0) return std::nullopt;
  return std::span(tokens_).subspan(slot.tokens, slot.token_count);
}

void WordCache::add(std::string_view word, std::span<const int32_t> tokens) {
  if (word.empty() || word.size() > kLongestWord || tokens.size() > kMostTokens) return;
  if (used_ >= kSlots * 3 / 4 || words_.size() > kMostStored || tokens_.size() > kMostStored) {
    slots_.assign(kSlots, Slot());
    words_.clear();
    tokens_.clear();
    used_ = 0;
  }
  const uint64_t hash = hash_bytes(word);
  Slot& slot = slots_[slot_of(word, hash)];
  if (slot.word_size != 0) return;
  slot = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(tokens_.size()), static_cast<uint16_t>(word.size()),
          static_cast<uint16_t>(tokens.size())};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ++used_;
}

std::unique_ptr<WordCache> WordCachePool::borrow() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto cache = std::move(free_.back());
      free_.pop_back();
      return cache;
    }
  }
  return std::make_unique<WordCache>();
}

void WordCachePool::give_back(std::unique_ptr<WordCache> cache) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kMost) free_.push_back(std::move(cache));
}

}  // namespace zt::data::huggingface
