#include "utf8.h"

#include <cstdint>

namespace zt::ckpt {

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto first = static_cast<unsigned char>(bytes[i++]);
    if (first < 0x80) continue;
    const int following = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4) return false;
    uint32_t code = first & (0x3F >> following);
    for (int k = 0; k < following; ++k, ++i) {
      if (i == bytes.size() || (static_cast<unsigned char>(bytes[i]) & 0xC0) != 0x80) return false;
      code = code << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F);
    }
    const bool is_overlong = (following == 2 && code < 0x800) || (following == 3 && code < 0x10000);
    if (is_overlong || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
  }
  return true;
}

}  // namespace zt::ckpt
