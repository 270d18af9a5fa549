// The indefinite article, for messages.
#pragma once

#include <string>
#include <string_view>

namespace zt {

// Returns the name of a type, which is capitalised, after its article: "an Optimizer", "a Layer".
inline std::string with_article(std::string_view name) {
  const bool has_vowel = !name.empty() && std::string_view("AEIO").find(name.front()) != std::string_view::npos;
  return std::string(has_vowel ? "an " : "a ").append(name);
}

}  // namespace zt
