// A tokenizer.json for tests: a BPE model with one token per ASCII letter and no merges.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "huggingface/huggingface_tokenizer.h"

namespace zt::data {

// The ids of the characters ' ' to '~' are 0 to 94.
inline nlohmann::json small_document() {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (char letter = ' '; letter <= '~'; ++letter) vocabulary[std::string(1, letter)] = letter - ' ';
  return {{"version", "1.0"},
          {"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

inline nlohmann::json small_added(int id, const std::string& content, bool is_special, bool is_normalized = false) {
  return {{"id", id},        {"content", content},    {"single_word", false},       {"lstrip", false},
          {"rstrip", false}, {"special", is_special}, {"normalized", is_normalized}};
}

inline std::shared_ptr<Tokenizer> small_tokenizer(const nlohmann::json& document) {
  return parse_huggingface_tokenizer(document.dump(), "small.json");
}

// Returns what the ids are, with added tokens in braces: "{<s>}ab".
inline std::string spelled(const std::vector<int32_t>& ids, const nlohmann::json& document) {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 95) text += static_cast<char>(' ' + id);
    for (const auto& token : document["added_tokens"]) {
      if (token["id"] == id) text += "{" + token["content"].get<std::string>() + "}";
    }
  }
  return text;
}

}  // namespace zt::data
