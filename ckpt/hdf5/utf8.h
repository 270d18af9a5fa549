// Checks whether bytes are UTF-8.
#pragma once

#include <string_view>

namespace zt::ckpt {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace zt::ckpt
