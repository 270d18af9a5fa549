// The patterns of Split and Replace: a text, or a regular expression.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/text/json_fields.h"
#include "huggingface/text/unicode_regex.h"

namespace zt::data::huggingface {

// Threads: any.
class TextPattern {
 public:
  // Reads {"String": "a"} or {"Regex": "a+"}. Throws Fault if the fields are wrong or the expression is not supported.
  explicit TextPattern(const JsonFields& fields);

  // As UnicodeRegex::find_all.
  void find_all(std::string_view text, std::vector<PatternSpan>& spans) const;

 private:
  std::string string_;
  std::optional<UnicodeRegex> regex_;
};

// Replaces `spans` by the places of a string that is not empty, and what lies between, as UnicodeRegex::find_all.
void find_string(std::string_view text, std::string_view string, std::vector<PatternSpan>& spans);

}  // namespace zt::data::huggingface
