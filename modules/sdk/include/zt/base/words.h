// Enums whose values have words, in options and in messages. Each has one table of them, in the order of its values, which is
// found by the type:
//
//   enum class Score : uint8_t { softmax, sigmoid };
//   constexpr auto words_of(Score) { return std::array{"softmax", "sigmoid"}; }
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <vector>

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

}  // namespace zt
