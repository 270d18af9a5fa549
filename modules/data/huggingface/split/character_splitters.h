// Pre-tokenizers that look at one character after the other: WhitespaceSplit, BertPreTokenizer, Punctuation, Digits,
// CharDelimiterSplit, UnicodeScripts and FixedLength.
#pragma once

#include <memory>
#include <string>

#include "huggingface/split/pre_tokenizer.h"

namespace zt::data::huggingface {

// Returns nullptr if the type is not one of these. Throws Fault if the fields are wrong.
std::unique_ptr<PreTokenizer> parse_character_splitter(const std::string& type, const JsonFields& fields);

}  // namespace zt::data::huggingface
