// The tokens "<0x00>" to "<0xFF>" of single bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "huggingface/model/token_table.h"

namespace zt::data::huggingface {

class ByteTokens {
 public:
  ByteTokens() { ids_.fill(kMissing); }
  explicit ByteTokens(const TokenTable& tokens);

  bool has_all(std::string_view bytes) const;
  // Requires has_all of the byte.
  int32_t id_of(char byte) const { return ids_[static_cast<unsigned char>(byte)]; }

 private:
  static constexpr int32_t kMissing = -1;

  std::array<int32_t, 256> ids_;
};

// Returns the byte that a token such as "<0x0A>" stands for, or nullopt. As tokenizers, takes small letters and a sign, too.
std::optional<char> byte_of_token(std::string_view token);

}  // namespace zt::data::huggingface
