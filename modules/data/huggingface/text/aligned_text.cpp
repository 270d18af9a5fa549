#include "huggingface/text/aligned_text.h"

#include <algorithm>

namespace zt::data::huggingface {

void TextEdit::keep(size_t begin, size_t end) {
  if (begin == end) return;
  if (begin < old_.origin && new_.origin == new_.text.size()) new_.origin += std::min(end, old_.origin) - begin;
  new_.text.append(old_.text, begin, end - begin);
  if (!old_.sources.empty()) {
    new_.sources.insert(new_.sources.end(), old_.sources.begin() + static_cast<ptrdiff_t>(begin),
                        old_.sources.begin() + static_cast<ptrdiff_t>(end));
  }
}

void TextEdit::replace(size_t begin, size_t end, std::string_view with, size_t anchor) {
  if (anchor < old_.origin && new_.origin == new_.text.size()) new_.origin += with.size();
  new_.text += with;
  if (old_.sources.empty()) return;
  TextRange source;
  if (begin < end) {
    source = {old_.sources[begin].begin, old_.sources[begin].end};
    for (size_t i = begin; i < end; ++i) {
      source = {std::min(source.begin, old_.sources[i].begin), std::max(source.end, old_.sources[i].end)};
    }
  } else if (begin < old_.sources.size()) {
    source = {old_.sources[begin].begin, old_.sources[begin].begin};
  } else {
    source = {old_.sources.back().end, old_.sources.back().end};
  }
  new_.sources.insert(new_.sources.end(), with.size(), source);
}

}  // namespace zt::data::huggingface
