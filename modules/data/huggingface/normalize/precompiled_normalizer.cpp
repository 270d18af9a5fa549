#include "huggingface/normalize/precompiled_normalizer.h"

#include <utf8proc.h>

#include "huggingface/normalize/double_array.h"
#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kShortGrapheme = 6;  // bytes; shorter ones are looked up as a whole first

// Returns the end of the grapheme cluster at the offset `at` (UAX 29).
size_t end_of_grapheme(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  auto before = static_cast<utf8proc_int32_t>(character_at(text, at));
  size_t end = at + bytes_of_character(text[at]);
  while (end < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(character_at(text, end));
    if (utf8proc_grapheme_break_stateful(before, next, &state)) break;
    before = next;
    end += bytes_of_character(text[end]);
  }
  return end;
}

class PrecompiledNormalizer : public TextNormalizer {
 public:
  explicit PrecompiledNormalizer(CharacterMap map) : map_(std::move(map)) {}

  void apply(AlignedText& text) const override {
    TextEdit edit(text);
    for (size_t at = 0; at < text.text.size();) {
      const size_t end = end_of_grapheme(text.text, at);
      if (end - at >= kShortGrapheme || !replace(edit, text, at, end)) {
        for (size_t one = at, size = 0; one < end; one += size) {
          size = bytes_of_character(text.text[one]);
          if (!replace(edit, text, one, one + size))
            edit.replace(one, one + size, view(text, one, one + size), anchor(edit, one));
        }
      }
      at = end;
    }
    text = edit.finish();
  }

 private:
  static std::string_view view(const AlignedText& text, size_t begin, size_t end) {
    return std::string_view(text.text).substr(begin, end - begin);
  }
  // tokenizers counts the first character that is written as the first of the text, also if others were removed before it.
  static size_t anchor(const TextEdit& edit, size_t begin) { return edit.size() == 0 ? 0 : begin; }

  bool replace(TextEdit& edit, const AlignedText& text, size_t begin, size_t end) const {
    const auto with = map_.find(view(text, begin, end));
    if (with) edit.replace(begin, end, *with, anchor(edit, begin));
    return with.has_value();
  }

  CharacterMap map_;
};

}  // namespace

std::unique_ptr<TextNormalizer> parse_precompiled_normalizer(const std::string& type, const JsonFields& fields) {
  if (type != "Precompiled") return nullptr;
  fields.allow_only({"type", "precompiled_charsmap"});
  return std::make_unique<PrecompiledNormalizer>(
      CharacterMap(fields.text("precompiled_charsmap"), fields.place_of("precompiled_charsmap")));
}

}  // namespace zt::data::huggingface
