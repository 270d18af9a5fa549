// The tokens of a vocabulary and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any may read while no thread adds.
class TokenTable {
 public:
  TokenTable() : slots_(kFewestSlots, 0) {}
  // Reads a vocabulary, which is an object with ids. Throws Fault, with `place`, for a wrong id or two tokens with one id.
  TokenTable(const JsonValue& vocabulary, const std::string& place);

  // Adds a token. If the token is there, it gets the new id, and the old id keeps its token.
  void add(std::string token, int32_t id);

  size_t size() const { return tokens_.size(); }
  // Returns the largest id plus 1.
  int64_t end_id() const { return static_cast<int64_t>(by_id_.size()); }
  std::optional<int32_t> id_of(std::string_view token) const;
  // Returns nullptr for an id without a token. The result is valid until a token is added.
  const std::string* token_of(int64_t id) const;
  // Returns the size in bytes of the longest token.
  size_t longest() const { return longest_; }

 private:
  static constexpr size_t kFewestSlots = 16;

  size_t slot_of(std::string_view token) const;
  void grow();

  std::vector<std::string> tokens_;
  std::vector<int32_t> ids_;
  std::vector<uint32_t> slots_;  // by hash: index in tokens_ plus 1, or 0
  std::vector<uint32_t> by_id_;  // index in tokens_ plus 1, or 0
  size_t longest_ = 0;
};

}  // namespace zt::data::huggingface
