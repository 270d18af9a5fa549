// Unigram (Kudo 2018): the tokens of a word with the largest sum of scores, by Viterbi's algorithm.
#pragma once

#include <memory>

#include "huggingface/model/subword_model.h"

namespace zt::data::huggingface {

// Throws Fault if the fields are wrong. Without unk_id, tokenizing throws Fault for a character that no token covers.
std::unique_ptr<SubwordModel> parse_unigram_model(const JsonFields& fields);

}  // namespace zt::data::huggingface
