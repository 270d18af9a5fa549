// Reads the parts of a regular expression of Oniguruma.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data::huggingface {

// Threads: one at a time.
class OnigurumaScanner {
 public:
  explicit OnigurumaScanner(std::string_view pattern) : pattern_(pattern) {}

  bool at_end() const { return at_ == pattern_.size(); }
  // Returns the next byte. Throws Fault at the end.
  char peek() const;
  char take();
  // Takes `text` if the pattern goes on with it. Returns whether it does.
  bool take_if(std::string_view text);

  // Takes a character. Returns it as PCRE2 writes it.
  std::string literal();
  // Takes a character. Returns it.
  char32_t character();
  // After a backslash: takes \s, \S, \d, \D, \p{...} or \P{...}. Returns the property of PCRE2, or nullopt if something else
  // comes.
  std::optional<std::string> class_escape();
  // After a backslash: takes the escape of one character, such as n or x{41}. Returns the character.
  char32_t character_escape();

  struct Interval {
    std::string text;  // as PCRE2 writes it
    bool is_fixed;     // it has one number and no comma
  };
  // Takes an interval such as {1,3}. Returns nullopt, and takes nothing, if it is none.
  std::optional<Interval> interval();

  // Takes the start of a group up to its content. Returns it as PCRE2 writes it: "" for a comment, which is taken as a whole, and
  // a text with ')' at its end for options that hold up to the end of the enclosing group.
  std::string group_start();

  // Returns a character as PCRE2 writes it.
  static std::string literal_of(char32_t character);

  // Throws the Fault that `construct` is not supported.
  [[noreturn]] void refuse(const std::string& construct) const;

 private:
  char32_t hexadecimal(size_t most_digits);
  std::string number();

  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace zt::data::huggingface
