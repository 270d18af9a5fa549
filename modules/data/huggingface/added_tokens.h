// The added tokens of tokenizer.json, which are found in a text before it is split into words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "huggingface/model/subword_model.h"
#include "huggingface/special_filter.h"
#include "huggingface/text/aligned_text.h"
#include "huggingface/text/byte_trie.h"
#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

struct AddedToken {
  std::string content;
  std::string decoded;  // what decoders get: the normalized content if the token is normalized, else the content
  bool is_special = false;
  bool is_normalized = false;   // it is looked for in the normalized text
  bool is_single_word = false;  // it counts only where no word character is beside it
  bool takes_left = false;      // it takes white space before it, too
  bool takes_right = false;
};

// A part of a text: an added token, or what lies between.
struct AddedMatch {
  size_t begin, end;
  int32_t id;  // -1: no added token
};

// Threads: any.
class AddedTokens {
 public:
  AddedTokens() = default;
  // Reads the list. The tokens get the ids that tokenizers gives them: the model's, else the next free ones.
  // Throws Fault if the file says other ids, if a content is longer than 1,024 bytes, or for wrong fields.
  AddedTokens(const JsonValue& list, const std::string& place, const SubwordModel& model);

  // Normalizes the tokens that are looked for in normalized texts by `normalize(AlignedText&)`, and prepares the search.
  template <class Normalize>
  void prepare(const Normalize& normalize) {
    for (auto& [id, token] : tokens_) {
      AlignedText text{token.content, 0, {}};
      if (token.is_normalized) normalize(text);
      token.decoded = std::move(text.text);
    }
    build();
  }

  // Returns the largest id plus 1, or 0.
  int64_t end_id() const { return end_id_; }
  // Returns nullptr for an id that is not of an added token.
  const AddedToken* find(int64_t id) const;
  std::optional<int32_t> id_of(std::string_view content) const;
  // Returns whether a text is the content of a special token.
  bool is_special(const std::string& content) const { return special_.contains(content); }

  bool has_normalized() const { return !normalized_.empty(); }
  bool has_normalized_special() const { return has_normalized_special_; }
  // Return the parts of a text that is not empty: before normalization, or after it. As in tokenizers, parts overlap where an
  // added token starts with white space that the one before it took.
  std::vector<AddedMatch> split(std::string_view text, const SpecialFilter& filter) const;
  std::vector<AddedMatch> split_normalized(std::string_view text, const SpecialFilter& filter) const;

 private:
  void build();
  std::vector<AddedMatch> split_by(const ByteTrie& trie, std::string_view text, const SpecialFilter& filter) const;
  void add_match(std::string_view text, size_t begin, size_t end, int32_t id, std::vector<AddedMatch>& matches,
                 size_t& written) const;

  std::vector<std::pair<int32_t, AddedToken>> tokens_;
  std::unordered_map<int64_t, size_t> by_id_;  // index in tokens_
  std::unordered_map<std::string, int32_t> by_content_;
  std::unordered_set<std::string> special_;
  ByteTrie plain_, normalized_;
  bool has_normalized_special_ = false;
  int64_t end_id_ = 0;
};

}  // namespace zt::data::huggingface
