// Regular expressions from scripts.
#pragma once

#include <regex>
#include <string>

namespace zt {

// Of ECMAScript syntax. Misuse, with `path`, for a pattern that is none.
std::regex compile_regex(const std::string& pattern, const std::string& path);

}  // namespace zt
