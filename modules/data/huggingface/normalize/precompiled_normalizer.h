// The normalizer Precompiled: a table of sentencepiece, such as nmt_nfkc, as a double-array trie (Yata et al. 2007).
#pragma once

#include <memory>
#include <string>

#include "huggingface/normalize/text_normalizer.h"

namespace zt::data::huggingface {

// Returns nullptr if the type is not one of these. Throws Fault if the fields are wrong.
std::unique_ptr<TextNormalizer> parse_precompiled_normalizer(const std::string& type, const JsonFields& fields);

}  // namespace zt::data::huggingface
