// JSON from outside, as safetensors files have it: an object of objects, of which no key may occur twice.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace zt::ckpt::safetensors {

// Fault: the file `path` is not a valid one, since `what`, a sentence without a full stop.
[[noreturn]] void damaged(const std::string& path, const std::string& what);

// A name from a file for messages: in quotes, with escapes for what is not printable ASCII, cut where it is long.
std::string shown(std::string_view name);

// An object. Fault for what is no JSON, does not begin with '{', has a key twice, has objects deeper than {"": {"": 0}}, lists
// but as {"": {"": []}}, or a list of more than 64 values: memory is bounded by the text's size.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// An object of texts, which a message calls `name`. Fault for anything else.
std::map<std::string, std::string> read_texts(const nlohmann::json& object, const std::string& name, const std::string& path);

}  // namespace zt::ckpt::safetensors
