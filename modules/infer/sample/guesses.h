// Guesses the next tokens of a sequence from what it said before.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace zt::infer {

// Looks for the latest earlier place of the last `match` tokens, and guesses that the same tokens follow (prompt lookup decoding,
// Saxena, 2023). Sequences only grow. Threads: one at a time.
class TokenGuesses {
 public:
  TokenGuesses(int64_t match, int64_t most) : match_(static_cast<size_t>(match)), most_(static_cast<size_t>(most)) {}
  // `tokens`: those of the last call, and more. Returns at most `most` guesses for those after them.
  std::vector<int32_t> after(std::span<const int32_t> tokens);

 private:
  uint64_t hash_of(std::span<const int32_t> tokens, size_t end) const;

  const size_t match_, most_;
  size_t known_ = 0;                           // places that `ends_` has
  std::unordered_map<uint64_t, size_t> ends_;  // by the hash of `match` tokens: the place after their latest occurrence
};

}  // namespace zt::infer
