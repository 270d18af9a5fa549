// GPT-2's alphabet: each byte is written as one printable character (Radford et al. 2019). A space is U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zt::data::huggingface {

// Appends the characters of the bytes of `text`.
void append_byte_characters(std::string& out, std::string_view text);

// Returns the bytes that `characters`, which is UTF-8, stands for, or nullopt if a character is outside the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace zt::data::huggingface
