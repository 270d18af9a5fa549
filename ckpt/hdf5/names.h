// Names of tensors and values as paths in an HDF5 file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zt::ckpt {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

// Returns the name of an HDF5 link for any text. '/', '@', '%', '~', control characters, a name "." and bytes that are no UTF-8
// become ~XX, their hexadecimal code. The empty text becomes "~". FORMAT.md has the reasons.
std::string encode_key(std::string_view key);
// Returns the text, or nullopt if encode_key gives no such name.
std::optional<std::string> decode_key(std::string_view link);

// The same for a name in which '/' separates groups: "optimizer/exp_avg/h.0.weight".
std::string encode_name(std::string_view name);
std::optional<std::string> decode_name(std::string_view path);

// Returns the path of a tensor's piece `number` (from 0) within one shard: "/model/h.0.weight", "/model/h.0.weight@1".
std::string piece_path(std::string_view tensor, size_t number);

}  // namespace zt::ckpt
