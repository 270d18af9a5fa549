// Parses the JSON of safetensors files: an object of objects in which no key occurs twice.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace zt::ckpt::safetensors {

// Throws a Fault that the file `path` is not valid. what: the reason, a clause without a full stop.
[[noreturn]] void damaged(const std::string& path, const std::string& what);

// Returns a name from a file for use in a message: in quotes, escaped to ASCII, and shortened if it is long.
std::string shown(std::string_view name);

// Returns a JSON object. Throws a Fault for text that is no JSON, does not begin with '{' or has a key twice. Also refuses
// objects deeper than {"": {"": 0}}, lists elsewhere than in {"": {"": []}}, and lists of more than 64 values, so that the text's
// size bounds the memory.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// Returns an object of strings. Throws a Fault, which calls it `name`, for anything else.
std::map<std::string, std::string> read_texts(const nlohmann::json& object, const std::string& name, const std::string& path);

}  // namespace zt::ckpt::safetensors
