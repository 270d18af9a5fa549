#include "zt/base/regex.h"

#include <regex>

#include "zt/base/error.h"

namespace zt {

struct Regex::Compiled {
  std::regex regex;
};

Regex::Regex(const std::string& pattern, const std::string& path) {
  try {
    compiled_ = std::make_shared<const Compiled>(std::regex(pattern, std::regex::ECMAScript | std::regex::optimize));
  } catch (const std::regex_error& error) {
    misuse("{}: '{}' is not a regular expression ({}): ECMAScript syntax is expected, with \\\\ before . ( [ and the like", path,
           pattern, error.what());
  }
}

bool Regex::is_found_in(const std::string& text) const {
  return std::regex_search(text, compiled_->regex);
}

std::string Regex::replace(const std::string& text, const std::string& replacement) const {
  return std::regex_replace(text, compiled_->regex, replacement);
}

}  // namespace zt
