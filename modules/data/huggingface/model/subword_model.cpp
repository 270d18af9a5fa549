#include "huggingface/model/subword_model.h"

#include "huggingface/model/bpe_model.h"
#include "huggingface/model/unigram_model.h"
#include "huggingface/model/word_level_model.h"
#include "huggingface/model/word_piece_model.h"

namespace zt::data::huggingface {

namespace {

// Old files have no type: their models differ by their fields.
std::string type_of_model(const JsonFields& fields) {
  if (fields.has("type")) return fields.text("type");
  if (fields.has("merges")) return "BPE";
  if (fields.has("max_input_chars_per_word")) return "WordPiece";
  return fields.any("vocab").is_array() ? "Unigram" : "WordLevel";
}

}  // namespace

SubwordModel::~SubwordModel() = default;

std::unique_ptr<SubwordModel> parse_subword_model(const JsonFields& fields) {
  const std::string type = type_of_model(fields);
  if (type == "BPE") return parse_bpe_model(fields);
  if (type == "WordPiece") return parse_word_piece_model(fields);
  if (type == "WordLevel") return parse_word_level_model(fields);
  if (type == "Unigram") return parse_unigram_model(fields);
  fields.refuse("model", "known are BPE, WordPiece, WordLevel and Unigram");
}

}  // namespace zt::data::huggingface
