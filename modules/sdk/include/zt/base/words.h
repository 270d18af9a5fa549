// Enums whose values have words, in options and in messages. Each has one table of them, in the order of its values, which is
// found by the type:
//
//   enum class Score : uint8_t { softmax, sigmoid };
//   constexpr auto words_of(Score) { return std::array{"softmax", "sigmoid"}; }
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "zt/base/error.h"

namespace zt {

template <class E>
concept EnumWithWords = std::is_enum_v<E> && requires(E value) {
  words_of(value);
};

template <EnumWithWords E>
std::string word_of(E value) {
  return words_of(value)[static_cast<size_t>(value)];
}

template <EnumWithWords E>
std::vector<std::string> all_words() {
  constexpr auto kWords = words_of(E{});
  return {kWords.begin(), kWords.end()};
}

// Returns the value of a word. Throws Misuse for an unknown one, with the nearest. `unknown`: "unknown mode".
template <EnumWithWords E>
E parse_word(const std::string& word, const std::string& unknown) {
  const std::vector<std::string> words = all_words<E>();
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) misuse("{} '{}'{}", unknown, word, suggest(word, words));
  return static_cast<E>(found - words.begin());
}

}  // namespace zt
