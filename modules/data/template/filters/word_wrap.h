// Divides a line at words, as textwrap of Python does.
#pragma once

#include "template/value/text.h"

namespace zt::data::jinja {

struct WrapRules {
  size_t width;
  bool breaks_long_words, breaks_on_hyphens;
};

// Returns lines of at most `width` characters (longer words stay whole unless they are broken), without white space at their
// ends.
std::vector<MarkedText> wrap_line(MarkedView line, const WrapRules& rules);

}  // namespace zt::data::jinja
