// A text that normalizers change, with the places in the original text that its bytes come from.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zt/text/tokenizer.h"

namespace zt::data::huggingface {

struct AlignedText {
  std::string text;
  // The first `origin` bytes of the text come from the first character of the whole text that is encoded. 0 if its first
  // character was removed, or if this text is a later part of the whole text.
  size_t origin = 0;
  // By byte of the text: the bytes of the original text that it comes from. Empty if they are not tracked.
  std::vector<TextRange> sources;
};

// Makes the changed text from left to right. Threads: one at a time.
class TextEdit {
 public:
  explicit TextEdit(const AlignedText& old) : old_(old) { new_.text.reserve(old.text.size() + 16); }

  // Takes over the bytes [begin, end) of the old text.
  void keep(size_t begin, size_t end);
  // Writes `with` for the bytes [begin, end) of the old text, which may be none. It counts as part of the first character if the
  // byte `anchor` of the old text does.
  void replace(size_t begin, size_t end, std::string_view with, size_t anchor);
  void replace(size_t begin, size_t end, std::string_view with) { replace(begin, end, with, begin); }

  // Returns the number of bytes that were written.
  size_t size() const { return new_.text.size(); }
  AlignedText finish() { return std::move(new_); }

 private:
  const AlignedText& old_;
  AlignedText new_;
};

}  // namespace zt::data::huggingface
