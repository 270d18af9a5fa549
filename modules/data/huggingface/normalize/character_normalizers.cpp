#include "huggingface/normalize/character_normalizers.h"

#include "huggingface/text/byte_level.h"
#include "huggingface/text/normal_forms.h"
#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

class FormNormalizer : public TextNormalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void apply(AlignedText& text) const override { normalize_form(text, form_); }

 private:
  NormalForm form_;
};

// Replaces each character by the text that `write(character, bytes, out)` appends for it.
template <class Write>
void map_characters(AlignedText& text, const Write& write) {
  TextEdit edit(text);
  std::string out;
  size_t kept = 0;  // the text before it is written
  for (size_t at = 0, size = 0; at < text.text.size(); at += size) {
    size = bytes_of_character(text.text[at]);
    const std::string_view bytes = std::string_view(text.text).substr(at, size);
    out.clear();
    write(character_at(text.text, at), bytes, out);
    if (out == bytes) continue;
    edit.keep(kept, at);
    edit.replace(at, at + size, out);
    kept = at + size;
  }
  if (kept == 0) return;
  edit.keep(kept, text.text.size());
  text = edit.finish();
}

// Removes the characters for which `is_removed` is true.
template <class Predicate>
void remove_characters(AlignedText& text, const Predicate& is_removed) {
  map_characters(text, [&](char32_t character, std::string_view bytes, std::string& out) {
    if (!is_removed(character)) out += bytes;
  });
}

void lower_case(AlignedText& text) {
  map_characters(text, [](char32_t character, std::string_view, std::string& out) { append_lower_case(out, character); });
}

class LowercaseNormalizer : public TextNormalizer {
 public:
  void apply(AlignedText& text) const override { lower_case(text); }
};

class AccentNormalizer : public TextNormalizer {
 public:
  void apply(AlignedText& text) const override { remove_characters(text, is_combining_mark); }
};

class ByteLevelNormalizer : public TextNormalizer {
 public:
  void apply(AlignedText& text) const override {
    map_characters(text, [](char32_t, std::string_view bytes, std::string& out) { append_byte_characters(out, bytes); });
  }
};

// The rules of sentencepiece for texts of machine translation.
class NmtNormalizer : public TextNormalizer {
 public:
  void apply(AlignedText& text) const override {
    map_characters(text, [](char32_t character, std::string_view bytes, std::string& out) {
      if (!is_removed(character)) out += is_space(character) ? " " : bytes;
    });
  }

 private:
  static bool is_removed(char32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

struct BertOptions {
  bool cleans_text, separates_chinese, strips_accents, lowers_case;
};

class BertTextNormalizer : public TextNormalizer {
 public:
  explicit BertTextNormalizer(const BertOptions& options) : options_(options) {}

  void apply(AlignedText& text) const override {
    if (options_.cleans_text) {
      map_characters(text, [](char32_t character, std::string_view bytes, std::string& out) {
        const bool is_line = character == '\t' || character == '\n' || character == '\r';
        if (!is_line && (character == 0 || character == 0xFFFD || is_control(character))) return;
        out += is_white_space(character) ? " " : bytes;
      });
    }
    if (options_.separates_chinese) {
      map_characters(text, [](char32_t character, std::string_view bytes, std::string& out) {
        const char* const space = is_chinese(character) ? " " : "";
        out.append(space).append(bytes).append(space);
      });
    }
    if (options_.strips_accents) {
      normalize_form(text, NormalForm::nfd);
      remove_characters(text, is_nonspacing_mark);
    }
    if (options_.lowers_case) lower_case(text);
  }

 private:
  // The blocks of ideographs, as BERT lists them.
  static bool is_chinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
  }

  BertOptions options_;
};

std::unique_ptr<TextNormalizer> parse_bert_normalizer(const JsonFields& fields) {
  fields.allow_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lowers_case = fields.flag("lowercase");
  return std::make_unique<BertTextNormalizer>(BertOptions{.cleans_text = fields.flag("clean_text"),
                                                          .separates_chinese = fields.flag("handle_chinese_chars"),
                                                          .strips_accents = fields.flag("strip_accents", lowers_case),
                                                          .lowers_case = lowers_case});
}

}  // namespace

std::unique_ptr<TextNormalizer> parse_character_normalizer(const std::string& type, const JsonFields& fields) {
  if (type == "BertNormalizer") return parse_bert_normalizer(fields);
  std::unique_ptr<TextNormalizer> normalizer;
  if (type == "NFC") normalizer = std::make_unique<FormNormalizer>(NormalForm::nfc);
  if (type == "NFD") normalizer = std::make_unique<FormNormalizer>(NormalForm::nfd);
  if (type == "NFKC") normalizer = std::make_unique<FormNormalizer>(NormalForm::nfkc);
  if (type == "NFKD") normalizer = std::make_unique<FormNormalizer>(NormalForm::nfkd);
  if (type == "Lowercase") normalizer = std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") normalizer = std::make_unique<AccentNormalizer>();
  if (type == "Nmt") normalizer = std::make_unique<NmtNormalizer>();
  if (type == "ByteLevel") normalizer = std::make_unique<ByteLevelNormalizer>();
  if (normalizer) fields.allow_only({"type"});
  return normalizer;
}

}  // namespace zt::data::huggingface
