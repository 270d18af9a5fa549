// Access to tests/golden/tokenizers, which tests/oracle/make_tokenizers.py writes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "huggingface/huggingface_tokenizer.h"

namespace zt::data {

inline std::string golden_text(const std::string& name) {
  std::ifstream file(std::string(ZT_SOURCE_DIR) + "/tests/golden/tokenizers/" + name, std::ios::binary);
  EXPECT_TRUE(file) << "the golden file " << name << " is missing: make it with scripts/test.sh --oracle";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(golden_text(name));
}

inline std::shared_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  return parse_huggingface_tokenizer(golden_text(name + ".json"), name + ".json");
}

// Returns the names of all tokenizers, sorted.
inline std::vector<std::string> golden_names() {
  const std::string end = ".expected.json";
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ZT_SOURCE_DIR) + "/tests/golden/tokenizers")) {
    const std::string file = entry.path().filename();
    if (file.ends_with(end)) names.push_back(file.substr(0, file.size() - end.size()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// What tokenizers makes of one text.
struct ExpectedEncoding {
  std::string text;
  std::vector<int32_t> none, parsed, added;  // by Specials
  std::string decoded;                       // of `added`
};

inline std::vector<ExpectedEncoding> golden_encodings(const std::string& name) {
  const auto texts = golden_json("texts.json"), lines = golden_json(name + ".expected.json");
  EXPECT_EQ(texts.size(), lines.size());
  std::vector<ExpectedEncoding> all;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& line = lines[i];
    const auto& parsed = line[1].is_null() ? line[0] : line[1];
    const auto& added = line[2].is_null() ? parsed : line[2];
    all.push_back({texts[i], line[0], parsed, added, line[3]});
  }
  return all;
}

inline std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options = {}) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids, options);
  return ids;
}

inline std::vector<int64_t> wide(const std::vector<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace zt::data
