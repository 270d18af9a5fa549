// WordPiece (Wu et al. 2016), as BERT uses it: the longest token that a word starts with, then the longest for the rest.
#pragma once

#include <memory>

#include "huggingface/model/subword_model.h"

namespace zt::data::huggingface {

// Throws Fault if the fields are wrong.
std::unique_ptr<SubwordModel> parse_word_piece_model(const JsonFields& fields);

}  // namespace zt::data::huggingface
