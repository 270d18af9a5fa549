#include "names.h"

#include <fmt/format.h>

#include <cstdint>
#include <vector>

namespace zt::ckpt {

namespace {

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

template <class Convert>
auto by_parts(std::string_view name, Convert convert) {
  std::vector<decltype(convert(name))> parts;
  for (size_t start = 0;;) {
    const size_t end = name.find('/', start);
    parts.push_back(convert(name.substr(start, end - start)));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

}  // namespace

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

std::string encode_key(std::string_view key) {
  if (key.empty()) return "~";
  if (key == ".") return "~2E";
  const bool is_text = is_utf8(key);
  std::string link;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain =
        byte >= 0x80 ? is_text : byte > 0x1F && byte != 0x7F && std::string_view("/@%~").find(c) == std::string_view::npos;
    if (is_plain) link += c;
    else link += fmt::format("~{:02X}", byte);
  }
  return link;
}

std::optional<std::string> decode_key(std::string_view link) {
  std::string key;
  for (size_t i = 0; i < link.size() && link != "~"; ++i) {
    if (link[i] != '~') {
      key += link[i];
      continue;
    }
    if (i + 2 >= link.size()) return std::nullopt;
    const auto high = hex_digit(link[i + 1]), low = hex_digit(link[i + 2]);
    if (!high || !low) return std::nullopt;
    key += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  if (encode_key(key) != link) return std::nullopt;
  return key;
}

std::string encode_name(std::string_view name) {
  return fmt::format("{}", fmt::join(by_parts(name, encode_key), "/"));
}

std::optional<std::string> decode_name(std::string_view path) {
  std::string name;
  bool is_first = true;
  for (const auto& part : by_parts(path, decode_key)) {
    if (!part) return std::nullopt;
    name += (is_first ? "" : "/") + *part;
    is_first = false;
  }
  return name;
}

std::string piece_path(std::string_view tensor, size_t number) {
  return "/" + encode_name(tensor) + (number == 0 ? std::string() : fmt::format("@{}", number));
}

}  // namespace zt::ckpt
