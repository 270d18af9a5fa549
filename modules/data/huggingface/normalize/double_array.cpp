#include "huggingface/normalize/double_array.h"

#include "huggingface/text/unicode.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kUnitBytes = 4;

int base64_digit(char byte) {
  if (byte >= 'A' && byte <= 'Z') return byte - 'A';
  if (byte >= 'a' && byte <= 'z') return byte - 'a' + 26;
  if (byte >= '0' && byte <= '9') return byte - '0' + 52;
  return byte == '+' ? 62 : byte == '/' ? 63 : -1;
}

std::string decode_base64(std::string_view text, const std::string& place) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = base64_digit(text[i]);
    if (digit < 0) fault("{}: this is not base64 (character {} is wrong)", place, i);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = kUnitBytes; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[at + i]);
  return number;
}

// The parts of a unit of the trie.
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}

uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}

size_t offset_of(uint32_t unit) {
  return static_cast<size_t>(unit >> 10) << ((unit & 0x200) >> 6);
}

}  // namespace

CharacterMap::CharacterMap(const std::string& encoded, const std::string& place) {
  const std::string bytes = decode_base64(encoded, place);
  if (bytes.size() < kUnitBytes) fault("{}: it is too short to hold a table", place);
  const size_t trie = number_at(bytes, 0);
  if (trie > bytes.size() - kUnitBytes || trie % kUnitBytes != 0 || trie == 0) {
    fault("{}: its trie has {} bytes, but {} follow. The file is damaged: fetch it again", place, trie,
          bytes.size() - kUnitBytes);
  }
  for (size_t at = kUnitBytes; at < kUnitBytes + trie; at += kUnitBytes) units_.push_back(number_at(bytes, at));
  texts_ = bytes.substr(kUnitBytes + trie);
  if (find_bad_utf8(texts_) != std::string_view::npos)
    fault("{}: its texts are not UTF-8. The file is damaged: fetch it again", place);
}

std::optional<std::string_view> CharacterMap::find(std::string_view text) const {
  size_t node = offset_of(units_[0]);
  for (const char byte : text) {
    if (byte == 0) return std::nullopt;
    node ^= static_cast<unsigned char>(byte);
    if (node >= units_.size() || label_of(units_[node]) != static_cast<unsigned char>(byte)) return std::nullopt;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size() || value_of(units_[node]) >= texts_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(texts_).substr(value_of(units_[node]));
    if ((static_cast<unsigned char>(rest[0]) & 0xC0) == 0x80) fault("precompiled_charsmap: its trie points into a character");
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

}  // namespace zt::data::huggingface
