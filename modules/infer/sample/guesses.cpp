#include "sample/guesses.h"

#include <algorithm>

namespace zt::infer {

// Of the tokens before `end` (FNV-1a, of whole tokens).
uint64_t TokenGuesses::hash_of(std::span<const int32_t> tokens, size_t end) const {
  uint64_t hash = 14695981039346656037U;
  for (const int32_t token : tokens.subspan(end - match_, match_)) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211U;
  return hash;
}

std::vector<int32_t> TokenGuesses::after(std::span<const int32_t> tokens) {
  if (tokens.size() < match_) return {};
  // The last place is looked up before it is known itself.
  for (size_t end = std::max(known_ + 1, match_); end < tokens.size(); ++end) ends_[hash_of(tokens, end)] = end;
  known_ = std::max(known_, tokens.size() - 1);
  const auto found = ends_.find(hash_of(tokens, tokens.size()));
  if (found == ends_.end()) return {};
  const size_t end = found->second;
  const auto same = tokens.subspan(end - match_, match_), last = tokens.last(match_);
  if (!std::ranges::equal(same, last)) return {};  // another text with the same hash
  const auto guesses = tokens.subspan(end, std::min(most_, tokens.size() - end));
  return {guesses.begin(), guesses.end()};
}

}  // namespace zt::infer
