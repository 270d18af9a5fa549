#include "huggingface/added_tokens.h"

#include <algorithm>

#include "huggingface/special_filter.h"
#include "huggingface/text/unicode.h"
#include "huggingface/text/unicode_word.h"
#include "zt/base/error.h"

namespace zt::data::huggingface {

namespace {

constexpr size_t kLongestContent = 1024;  // bytes; a search takes that many steps per byte at most

AddedToken parse_added_token(const JsonFields& fields) {
  fields.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{.content = fields.text("content"),
                   .decoded = {},
                   .is_special = fields.flag("special"),
                   .is_normalized = fields.flag("normalized"),
                   .is_single_word = fields.flag("single_word"),
                   .takes_left = fields.flag("lstrip"),
                   .takes_right = fields.flag("rstrip")};
  if (token.content.size() > kLongestContent) {
    fault("{}: added tokens of more than {} bytes are not supported", fields.place_of("content"), kLongestContent);
  }
  return token;
}

// Returns the start of the white space at the end of a text.
size_t start_of_space(std::string_view text) {
  size_t start = text.size();
  while (start > 0) {
    const size_t before = previous_character(text, start);
    if (!is_white_space(character_at(text, before))) break;
    start = before;
  }
  return start;
}

size_t size_of_space(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && is_white_space(character_at(text, size))) size += bytes_of_character(text[size]);
  return size;
}

}  // namespace

AddedTokens::AddedTokens(const JsonValue& list, const std::string& place, const SubwordModel& model) {
  auto next = static_cast<int64_t>(model.count());
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields fields(list[i], fmt::format("{}[{}]", place, i));
    AddedToken token = parse_added_token(fields);
    const int32_t wanted = id_from(fields.any("id"), fields.place_of("id"));
    if (token.content.empty()) continue;  // as in tokenizers
    auto known = id_of(token.content);
    if (!known) known = model.tokens().id_of(token.content);
    const auto id = static_cast<int32_t>(known.value_or(static_cast<int32_t>(next)));
    if (id != wanted) {
      fault("{}: the file says {} for '{}', but {}: make the ids of added tokens follow those of the model without gaps",
            fields.place_of("id"), wanted, token.content,
            known ? fmt::format("the same token has the id {} before", id) : fmt::format("the next free id is {}", id));
    }
    if (!known) ++next;
    if (token.is_special) special_.insert(token.content);
    by_content_[token.content] = id;
    end_id_ = std::max<int64_t>(end_id_, id + 1);
    const auto [entry, is_new] = by_id_.try_emplace(id, tokens_.size());
    if (is_new) tokens_.emplace_back(id, std::move(token));
    else tokens_[entry->second].second = std::move(token);
  }
}

void AddedTokens::build() {
  std::vector<std::pair<std::string, int32_t>> plain, normalized;
  for (const auto& [id, token] : tokens_) {
    (token.is_normalized ? normalized : plain).emplace_back(token.decoded, id);
    has_normalized_special_ |= token.is_normalized && is_special(token.content);
  }
  plain_ = ByteTrie(std::move(plain));
  normalized_ = ByteTrie(std::move(normalized));
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second].second;
}

std::optional<int32_t> AddedTokens::id_of(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<AddedMatch> AddedTokens::split(std::string_view text, const SpecialFilter& filter) const {
  return split_by(plain_, text, filter);
}

std::vector<AddedMatch> AddedTokens::split_normalized(std::string_view text, const SpecialFilter& filter) const {
  return split_by(normalized_, text, filter);
}

// Takes the longest token at the leftmost place, and goes on after it.
std::vector<AddedMatch> AddedTokens::split_by(const ByteTrie& trie, std::string_view text, const SpecialFilter& filter) const {
  std::vector<AddedMatch> matches;
  size_t written = 0;
  for (size_t at = 0; at < text.size() && !trie.empty();) {
    if (!trie.has_first(text[at])) {
      ++at;
      continue;
    }
    size_t size = 0, outside = 0;  // of the longest token, and of the longest that lies outside of all contents
    int32_t id = -1, outside_id = -1;
    trie.visit_prefixes(text.substr(at), [&](size_t length, int32_t number) {
      size = length;
      id = number;
      if (filter.contents.empty() || overlaps_contents(filter, at, at + length)) return;
      outside = length;
      outside_id = number;
    });
    if (size == 0) {
      ++at;
      continue;
    }
    const bool is_refused = is_special(find(id)->content) &&
                            (filter.refuses_all || (!filter.contents.empty() && overlaps_contents(filter, at, at + size)));
    if (is_refused && outside == 0) {
      at = place_after_refusal(filter, at, at + size);
      continue;
    }
    if (is_refused) {
      size = outside;
      id = outside_id;
    }
    add_match(text, at, at + size, id, matches, written);
    at += size;
  }
  if (written != text.size()) matches.push_back({written, text.size(), -1});
  return matches;
}

void AddedTokens::add_match(std::string_view text, size_t begin, size_t end, int32_t id, std::vector<AddedMatch>& matches,
                            size_t& written) const {
  const AddedToken& token = *find(id);
  if (token.is_single_word && (ends_with_word_character(text.substr(0, begin)) || starts_with_word_character(text.substr(end)))) {
    return;
  }
  if (token.takes_left) begin = std::max(start_of_space(text.substr(0, begin)), written);
  if (token.takes_right) end += size_of_space(text.substr(end));
  if (written < begin) matches.push_back({written, begin, -1});
  if (begin < end) matches.push_back({begin, end, id});  // else the token before has taken all of it, as white space
  written = end;
}

}  // namespace zt::data::huggingface
