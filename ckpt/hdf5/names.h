// Names of tensors and values as paths in an HDF5 file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zt::ckpt {

// One link's name for any text: '/', '@', '%', '~', control characters, a name "." and bytes that are no UTF-8 become ~XX, their
// hexadecimal code; the empty text becomes "~". FORMAT.md has the reasons.
std::string encode_key(std::string_view key);
// The text; nothing if encode_key gives no such name.
std::optional<std::string> decode_key(std::string_view link);

// The same where '/' in the name makes groups: "optimizer/exp_avg/h.0.weight".
std::string encode_name(std::string_view name);
std::optional<std::string> decode_name(std::string_view path);

// Where the shard has piece `number` (from 0) of those of one tensor that it holds: "/model/h.0.weight", "/model/h.0.weight@1".
std::string piece_path(std::string_view tensor, size_t number);

}  // namespace zt::ckpt
