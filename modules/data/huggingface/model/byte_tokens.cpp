#include "huggingface/model/byte_tokens.h"

#include <algorithm>
#include <charconv>

#include "zt/base/error.h"

namespace zt::data::huggingface {

ByteTokens::ByteTokens(const TokenTable& tokens) {
  for (size_t byte = 0; byte < ids_.size(); ++byte) ids_[byte] = tokens.id_of(fmt::format("<0x{:02X}>", byte)).value_or(kMissing);
}

bool ByteTokens::has_all(std::string_view bytes) const {
  return std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return id_of(byte) != kMissing; });
}

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const char* first = token.data() + 3;
  const char* const last = token.data() + 5;
  if (*first == '+') ++first;
  unsigned byte = 0;
  const auto [end, error] = std::from_chars(first, last, byte, 16);
  if (error != std::errc() || end != last) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace zt::data::huggingface
