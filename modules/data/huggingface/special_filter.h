// Which special tokens are not recognized in a text.
#pragma once

#include <span>
#include <string_view>

#include "zt/text/tokenizer.h"

namespace zt::data::huggingface {

struct SpecialFilter {
  bool refuses_all = false;
  std::span<const TextRange> contents = {};  // in the original text: none that overlaps with one of these. Ascending, disjoint
  size_t offset = 0;                         // where the text starts in the original text, unless `sources` is there
  std::span<const TextRange> sources = {};   // AlignedText::sources of the text
};

// Returns whether the bytes [begin, end) of the text, which are not none, come from one of the contents.
bool overlaps_contents(const SpecialFilter& filter, size_t begin, size_t end);

// Returns where to search on after a token at the bytes [begin, end) was refused. If it starts within contents, that is its end
// or the end of these contents, whichever comes first: a user's text must not hide a token that follows it. Else it is the next
// byte.
size_t place_after_refusal(const SpecialFilter& filter, size_t begin, size_t end);

}  // namespace zt::data::huggingface
