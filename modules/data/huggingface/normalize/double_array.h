// The table of sentencepiece's normalization rules: a double-array trie (Yata et al. 2007) and the texts that it points to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zt::data::huggingface {

// Threads: any.
class CharacterMap {
 public:
  // `encoded` is base64 of: the size in bytes of the trie (32 bits), the trie (32-bit units), and texts that each end with a
  // zero. Numbers are little-endian. Throws Fault, with `place`, if it is malformed.
  CharacterMap(const std::string& encoded, const std::string& place);

  // Returns what the shortest key with which `text` starts is replaced by, or nullopt if there is no such key. Throws Fault if
  // the table is damaged.
  std::optional<std::string_view> find(std::string_view text) const;

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace zt::data::huggingface
