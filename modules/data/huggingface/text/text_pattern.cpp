#include "huggingface/text/text_pattern.h"

#include "zt/base/error.h"

namespace zt::data::huggingface {

TextPattern::TextPattern(const JsonFields& fields) {
  fields.allow_only({"String", "Regex"});
  if (fields.has("Regex") == fields.has("String"))
    fault("{}: this must have either the field String or the field Regex", fields.place());
  if (fields.has("Regex")) {
    regex_ = with_context([&] { return fields.place(); }, [&] { return UnicodeRegex::from_oniguruma(fields.text("Regex")); });
  } else {
    string_ = fields.text("String");
    if (string_.empty()) regex_ = UnicodeRegex("", "");
  }
}

void TextPattern::find_all(std::string_view text, std::vector<PatternSpan>& spans) const {
  if (regex_) regex_->find_all(text, spans);
  else find_string(text, string_, spans);
}

void find_string(std::string_view text, std::string_view string, std::vector<PatternSpan>& spans) {
  spans.clear();
  size_t written = 0;
  for (size_t at = text.find(string); at != std::string_view::npos; at = text.find(string, written)) {
    if (written != at) spans.push_back({written, at, false});
    written = at + string.size();
    spans.push_back({at, written, true});
  }
  if (written != text.size() || text.empty()) spans.push_back({written, text.size(), false});
}

}  // namespace zt::data::huggingface
