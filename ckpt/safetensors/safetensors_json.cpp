#include "safetensors_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "zt/base/error.h"

namespace zt::ckpt::safetensors {

namespace {

using nlohmann::json;

constexpr size_t kLongest = 160;  // bytes of a file's text in a message
constexpr int kObjects = 2;       // levels of objects
constexpr int kListed = 64;       // values per list: the most dims that a tensor of ATen has

// A callback of nlohmann::json's parser. Checks what that parser allows: keys that occur twice, deep nesting and long lists.
struct ParseChecker {
  const std::string& path;
  std::set<std::string> keys[kObjects] = {};  // per level: keys of the current object
  int listed = 0;

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start) {
      if (depth >= kObjects) damaged(path, "its JSON has objects within objects within objects");
      keys[depth].clear();
    } else if (event == Event::array_start) {
      if (depth != kObjects) damaged(path, "its JSON has a list where none belongs");
      listed = 0;
    } else if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys[depth - 1].insert(key).second) damaged(path, fmt::format("its JSON has the key {} twice", shown(key)));
    } else if (event == Event::value && depth > kObjects && ++listed > kListed) {
      damaged(path, fmt::format("its JSON has a list of more than {} values", kListed));
    }
    return true;
  }
};

}  // namespace

void damaged(const std::string& path, const std::string& what) {
  fault("'{}' is not valid: {}. It was truncated or damaged, or another program wrote it wrongly: get it again", path, what);
}

std::string shown(std::string_view name) {
  const std::string text = json(name.substr(0, kLongest)).dump(-1, ' ', true, json::error_handler_t::replace);
  return name.size() > kLongest ? text + "..." : text;
}

json parse_json(std::string_view text, const std::string& path) {
  if (!text.starts_with('{')) damaged(path, "where its JSON should begin there is no '{'");
  try {
    return json::parse(text, ParseChecker{path});
  } catch (const json::exception& error) {
    damaged(path, "its JSON cannot be read: " + shown(error.what()));
  }
}

std::map<std::string, std::string> read_texts(const json& object, const std::string& name, const std::string& path) {
  if (!object.is_object()) damaged(path, fmt::format("{} is no JSON object", shown(name)));
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) damaged(path, fmt::format("{} in {} is no text", shown(key), shown(name)));
    texts[key] = value.get<std::string>();
  }
  return texts;
}

}  // namespace zt::ckpt::safetensors
