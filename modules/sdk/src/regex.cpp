#include "zt/regex.h"

#include "zt/error.h"

namespace zt {

std::regex compile_regex(const std::string& pattern, const std::string& path) {
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    misuse("{}: '{}' is not a regular expression ({}): ECMAScript syntax is expected, with \\\\ before . ( [ and the like", path,
           pattern, error.what());
  }
}

}  // namespace zt
