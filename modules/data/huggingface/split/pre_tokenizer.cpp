#include "huggingface/split/pre_tokenizer.h"

#include "huggingface/split/byte_level_splitter.h"
#include "huggingface/split/character_splitters.h"
#include "huggingface/split/metaspace_splitter.h"
#include "huggingface/split/pattern_splitters.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

// Appends the fields of all steps, with those of nested sequences.
void collect_steps(const JsonFields& fields, std::vector<JsonFields>& steps) {
  if (!fields.has("type") || fields.text("type") != "Sequence") return steps.push_back(fields);
  fields.allow_only({"type", "pretokenizers"});
  const JsonValue& list = fields.list("pretokenizers");
  for (size_t i = 0; i < list.size(); ++i) {
    collect_steps({list[i], fmt::format("{}[{}]", fields.place_of("pretokenizers"), i)}, steps);
  }
}

std::unique_ptr<PreTokenizer> parse_step(const std::string& type, const JsonFields& fields) {
  using Parser = std::unique_ptr<PreTokenizer> (*)(const std::string&, const JsonFields&);
  for (const Parser parse : {parse_pattern_splitter, parse_character_splitter, parse_metaspace_splitter}) {
    if (auto step = parse(type, fields)) return step;
  }
  fields.refuse(
      "pre-tokenizer",
      "known are Sequence, ByteLevel, Split, Whitespace, WhitespaceSplit, BertPreTokenizer, Metaspace, Punctuation, Digits, "
      "CharDelimiterSplit, UnicodeScripts and FixedLength");
}

}  // namespace

PreTokenizer::~PreTokenizer() = default;

PreTokenizers parse_pre_tokenizers(const JsonFields& fields) {
  std::vector<JsonFields> steps;
  collect_steps(fields, steps);
  PreTokenizers result;
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string type = steps[i].has("type") ? steps[i].text("type") : "";
    if (type == "ByteLevel") {
      result.leaves_bytes = i + 1 == steps.size();
      result.steps.push_back(parse_byte_level_splitter(steps[i], result.leaves_bytes));
    } else {
      result.steps.push_back(parse_step(type, steps[i]));
    }
  }
  return result;
}

}  // namespace zt::data::huggingface
