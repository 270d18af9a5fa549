#include "huggingface/split/metaspace_splitter.h"

#include "huggingface/text/metaspace.h"
#include "huggingface/text/text_pattern.h"

namespace zt::data::huggingface {

namespace {

class MetaspaceSplitter : public PreTokenizer {
 public:
  explicit MetaspaceSplitter(Metaspace options) : options_(std::move(options)) {}

  void split(SplitText& text) const override {
    text.rewrite([&](const TextRange& word) { return needs_prefix(text, word) ? options_.replacement : std::string(); },
                 [&](std::string_view part, std::string& out) { append_visible(part, out); });
    if (!options_.splits) return;
    text.split_by([&](std::string_view word, std::vector<PatternSpan>& spans) { find_string(word, options_.replacement, spans); },
                  MatchBehavior::merged_with_next);
  }

 private:
  bool needs_prefix(const SplitText& text, const TextRange& word) const {
    const std::string_view bytes = text.text_of(word);
    if (bytes.starts_with(' ') || bytes.starts_with(options_.replacement)) return false;
    return options_.scheme == PrependScheme::always || (options_.scheme == PrependScheme::first && text.is_at_origin(word));
  }

  void append_visible(std::string_view part, std::string& out) const {
    for (const char byte : part) {
      if (byte == ' ') out += options_.replacement;
      else out += byte;
    }
  }

  Metaspace options_;
};

}  // namespace

std::unique_ptr<PreTokenizer> parse_metaspace_splitter(const std::string& type, const JsonFields& fields) {
  if (type != "Metaspace") return nullptr;
  return std::make_unique<MetaspaceSplitter>(parse_metaspace(fields));
}

}  // namespace zt::data::huggingface
