// Encodes and decodes texts, for comparisons with other libraries. Usage: encode_lines TOKENIZER.json
//
// Each line of the standard input is a JSON string. For each, writes a line [none, parsed, added, decoded]: the ids by
// zt::Specials, and the text of those in `added`. If something cannot be encoded, the line is the message as a JSON string.
#include <array>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "huggingface/huggingface_tokenizer.h"
#include "zt/base/error.h"

namespace {

nlohmann::json encode_line(const zt::Tokenizer& tokenizer, const std::string& text) {
  nlohmann::json line;
  std::vector<int32_t> ids;
  for (const auto specials : {zt::Specials::none, zt::Specials::parsed, zt::Specials::added}) {
    ids.clear();
    tokenizer.encode(text, ids, {.specials = specials, .contents = {}});
    line.push_back(ids);
  }
  line.push_back(tokenizer.decode(std::vector<int64_t>(ids.begin(), ids.end())));
  return line;
}

}  // namespace

int main(int count, char** words) try {
  if (count != 2) zt::misuse("give the path of a tokenizer.json");
  std::ifstream file(words[1], std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  const auto tokenizer = zt::data::parse_huggingface_tokenizer(content.str(), words[1]);
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << encode_line(*tokenizer, nlohmann::json::parse(line).get<std::string>()).dump() << '\n';
    } catch (const zt::Fault& error) {
      std::cout << nlohmann::json(error.what()).dump() << '\n';
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
