// Regular expressions from scripts.
#pragma once

#include <memory>
#include <string>

namespace zt {

// A regular expression in ECMAScript syntax. Immutable; copies share the compiled form. Thread-safe.
class Regex {
 public:
  // Throws Misuse, with `path`, if `pattern` is not a regular expression.
  Regex(const std::string& pattern, const std::string& path);

  // Returns whether the expression matches anywhere in `text`.
  bool is_found_in(const std::string& text) const;
  // Returns `text` with every match replaced. In `replacement`, $1 is the first group.
  std::string replace(const std::string& text, const std::string& replacement) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace zt
