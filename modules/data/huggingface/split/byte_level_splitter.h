// The pre-tokenizer ByteLevel, of GPT-2 (Radford et al. 2019).
#pragma once

#include <memory>

#include "huggingface/split/pre_tokenizer.h"

namespace zt::data::huggingface {

// `leaves_bytes`: does not write the bytes of words as characters. Throws Fault if the fields are wrong.
std::unique_ptr<PreTokenizer> parse_byte_level_splitter(const JsonFields& fields, bool leaves_bytes);

}  // namespace zt::data::huggingface
