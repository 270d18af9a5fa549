// Byte pair encoding (Sennrich et al. 2016), as Hugging Face's tokenizers does it.
#pragma once

#include <memory>

#include "huggingface/model/subword_model.h"

namespace zt::data::huggingface {

// A character that the model has no token for becomes its bytes (with byte_fallback), else the unknown token. Without an unknown
// token, it is left out, as tokenizers leaves it out. Tokenizing takes time in proportion to n log n for n characters.
// Throws Fault if the fields are wrong, or if they ask for dropout, which makes encodings random.
std::unique_ptr<SubwordModel> parse_bpe_model(const JsonFields& fields);

}  // namespace zt::data::huggingface
