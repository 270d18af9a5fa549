#include "huggingface/normalize/text_normalizer.h"

#include "huggingface/normalize/character_normalizers.h"
#include "huggingface/normalize/edge_normalizers.h"
#include "huggingface/normalize/precompiled_normalizer.h"
#include "huggingface/normalize/replace_normalizer.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

TextNormalizer::~TextNormalizer() = default;

std::vector<std::unique_ptr<TextNormalizer>> parse_normalizers(const JsonFields& fields) {
  std::vector<std::unique_ptr<TextNormalizer>> normalizers;
  const std::string type = fields.has("type") ? fields.text("type") : "";
  if (type == "Sequence") {
    fields.allow_only({"type", "normalizers"});
    const JsonValue& list = fields.list("normalizers");
    for (size_t i = 0; i < list.size(); ++i) {
      for (auto& each : parse_normalizers({list[i], fmt::format("{}[{}]", fields.place_of("normalizers"), i)})) {
        normalizers.push_back(std::move(each));
      }
    }
    return normalizers;
  }
  using Parser = std::unique_ptr<TextNormalizer> (*)(const std::string&, const JsonFields&);
  for (const Parser parse :
       {parse_character_normalizer, parse_edge_normalizer, parse_replace_normalizer, parse_precompiled_normalizer}) {
    if (auto normalizer = parse(type, fields)) {
      normalizers.push_back(std::move(normalizer));
      return normalizers;
    }
  }
  fields.refuse(
      "normalizer",
      "known are Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, BertNormalizer, Replace, Prepend, Nmt, "
      "ByteLevel and Precompiled");
}

}  // namespace zt::data::huggingface
