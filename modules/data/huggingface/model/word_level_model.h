// One token per word.
#pragma once

#include <memory>

#include "huggingface/model/subword_model.h"

namespace zt::data::huggingface {

// Throws Fault if the fields are wrong.
std::unique_ptr<SubwordModel> parse_word_level_model(const JsonFields& fields);

}  // namespace zt::data::huggingface
