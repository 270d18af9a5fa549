// The text of an answer while it is made: it ends before a stop, and never in the middle of a character.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::infer {

// Finds the text, of several, that is complete first in bytes that arrive in pieces. Keeps back what may be the begin of one.
class StopTexts {
 public:
  // `stops`: none of them empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the bytes that are no part of a stop, before the first one if there is any.
  std::string add(std::string_view bytes);
  // Returns the bytes that were kept back: nothing follows them.
  std::string finish() { return std::exchange(held_, {}); }
  // The stop that was found; null: none yet.
  const std::string* found() const { return found_; }

 private:
  const std::vector<std::string> stops_;
  std::string held_;
  const std::string* found_ = nullptr;
};

// Makes UTF-8 of bytes that arrive in pieces. Each byte sequence that is no character, as long as it may begin one, becomes
// U+FFFD (Unicode 16, 3.9.6: substitution of maximal subparts).
class CharacterStream {
 public:
  // Returns the characters that are complete.
  std::string add(std::string_view bytes);
  // Returns U+FFFD if a character was not complete.
  std::string finish();

 private:
  std::string held_;  // the begin of a character
};

}  // namespace zt::infer
