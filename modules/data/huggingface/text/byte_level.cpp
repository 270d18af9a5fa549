#include "huggingface/text/byte_level.h"

#include <array>

#include "huggingface/text/unicode.h"

namespace zt::data::huggingface {

namespace {

constexpr bool is_own_character(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// The bytes that are not their own character become U+0100 and the characters after it.
struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<int, 512> bytes{};  // by character; -1: none
  ByteAlphabet() {
    bytes.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t character = is_own_character(byte) ? static_cast<char32_t>(byte) : next++;
      append_character(characters[static_cast<size_t>(byte)], character);
      bytes[character] = byte;
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

void append_byte_characters(std::string& out, std::string_view text) {
  const ByteAlphabet& alphabet = byte_alphabet();
  for (const char byte : text) out += alphabet.characters[static_cast<unsigned char>(byte)];
}

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  const ByteAlphabet& alphabet = byte_alphabet();
  std::string bytes;
  for (size_t at = 0; at < characters.size(); at += bytes_of_character(characters[at])) {
    const char32_t character = character_at(characters, at);
    if (character >= alphabet.bytes.size() || alphabet.bytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet.bytes[character]);
  }
  return bytes;
}

}  // namespace zt::data::huggingface
