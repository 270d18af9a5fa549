// The option `behavior` of pre-tokenizers.
#pragma once

#include <string_view>

#include "huggingface/split/split_text.h"
#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Reads "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext" or "Contiguous". Throws Fault for another value.
MatchBehavior behavior_from(const JsonFields& fields, std::string_view name);

}  // namespace zt::data::huggingface
