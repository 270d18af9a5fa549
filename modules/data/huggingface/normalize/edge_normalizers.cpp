#include "huggingface/normalize/edge_normalizers.h"

#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

class StripNormalizer : public TextNormalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}

  void apply(AlignedText& text) const override {
    const std::string& old = text.text;
    size_t begin = 0, end = old.size();
    while (left_ && begin < end && is_white_space(character_at(old, begin))) begin += bytes_of_character(old[begin]);
    while (right_ && begin < end) {
      const size_t last = previous_character(old, end);
      if (!is_white_space(character_at(old, last))) break;
      end = last;
    }
    TextEdit edit(text);
    edit.keep(begin, end);
    text = edit.finish();
  }

 private:
  bool left_, right_;
};

class PrependNormalizer : public TextNormalizer {
 public:
  explicit PrependNormalizer(std::string start) : start_(std::move(start)) {}

  void apply(AlignedText& text) const override {
    if (text.text.empty()) return;
    TextEdit edit(text);
    edit.replace(0, 0, start_);
    edit.keep(0, text.text.size());
    text = edit.finish();
  }

 private:
  std::string start_;
};

}  // namespace

std::unique_ptr<TextNormalizer> parse_edge_normalizer(const std::string& type, const JsonFields& fields) {
  if (type == "Strip") {
    fields.allow_only({"type", "strip_left", "strip_right"});
    return std::make_unique<StripNormalizer>(fields.flag("strip_left"), fields.flag("strip_right"));
  }
  if (type == "Prepend") {
    fields.allow_only({"type", "prepend"});
    return std::make_unique<PrependNormalizer>(fields.text("prepend"));
  }
  return nullptr;
}

}  // namespace zt::data::huggingface
