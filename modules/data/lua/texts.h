// The part of the module's binding that is about texts.
#pragma once

#include <string>
#include <vector>

#include "zt/lua/state.h"
#include "zt/text/tokenizer.h"

namespace zt::data {

// Returns ranges {{begin, end}, ...} of bytes that a script gives. Throws Misuse, with `name`, unless they ascend within the
// `size` bytes of a text.
std::vector<TextRange> text_ranges(const std::string& name, const std::vector<std::vector<int64_t>>& given, size_t size);

void open_texts(lua::Module& module);

}  // namespace zt::data
