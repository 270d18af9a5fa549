// The normalizer Replace.
#pragma once

#include <memory>
#include <string>

#include "huggingface/normalize/text_normalizer.h"

namespace zt::data::huggingface {

// Returns nullptr if the type is not one of these. Throws Fault if the fields are wrong.
std::unique_ptr<TextNormalizer> parse_replace_normalizer(const std::string& type, const JsonFields& fields);

}  // namespace zt::data::huggingface
