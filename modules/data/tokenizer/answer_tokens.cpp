#include "answer_tokens.h"

#include <algorithm>
#include <array>
#include <string>

#include "zt/base/error.h"

namespace zt::data {

namespace {

// Returns the parts of `ranges` in the bytes [begin, end), counted from `begin`, and moved by `shift`.
std::vector<TextRange> ranges_within(std::span<const TextRange> ranges, TextRange part, size_t shift = 0) {
  std::vector<TextRange> result;
  const auto first = std::ranges::upper_bound(ranges, part.begin, {}, &TextRange::end);
  for (auto range = first; range != ranges.end() && range->begin < part.end; ++range) {
    result.push_back(
        {std::max(range->begin, part.begin) - part.begin + shift, std::min(range->end, part.end) - part.begin + shift});
  }
  return result;
}

// Returns whether the tokenizer puts a space before a text.
bool adds_space_before(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.encode("a", ids);
  return !ids.empty() && tokenizer.bytes_of(ids[0]).starts_with(' ');
}

// Returns how many of the first tokens are those of `anchor`, with or without a space before it. Returns 0 if one token holds the
// end of the anchor and what follows.
size_t tokens_of_anchor(const Tokenizer& tokenizer, std::span<const int32_t> ids, std::string_view anchor) {
  std::string seen;
  for (size_t i = 0; i < ids.size() && seen.size() <= anchor.size(); ++i) {
    seen += tokenizer.bytes_of(ids[i]);
    if (seen == anchor || (seen.starts_with(' ') && std::string_view(seen).substr(1) == anchor)) return i + 1;
  }
  return 0;
}

// Encodes the parts of an AnswerText, from left to right.
class AnswerEncoder {
 public:
  AnswerEncoder(const Tokenizer& tokenizer, const AnswerText& text) : tokenizer_(tokenizer), text_(text), at_(text.from) {
    for (const int64_t id : text.begin) out_.tokens.push_back(static_cast<int32_t>(id));
    out_.counts.resize(out_.tokens.size());
    if (text.from > 0 && adds_space_before(tokenizer)) previous_ = last_token_before(text.from);
  }

  AnswerTokens run() {
    for (const TextRange& answer : text_.answers) {
      add_until(answer.begin, false);
      add_until(answer.end, true);
    }
    add_until(text_.text.size(), false);
    if (text_.counts_all) std::ranges::fill(out_.counts, uint8_t{1});
    if (text_.from == 0) {
      if (!out_.counts.empty()) out_.counts[0] = 0;
    } else {
      while (!out_.counts.empty() && out_.counts.back() == 0) out_.counts.pop_back();
      out_.tokens.resize(out_.counts.size());
    }
    return std::move(out_);
  }

 private:
  // Adds the text up to `end`. Sets which of its tokens count.
  void add_until(size_t end, bool is_answer) {
    const size_t first = out_.tokens.size();
    if (end > at_) encode({at_, end});
    at_ = std::max(at_, end);
    if (is_answer && text_.end) out_.tokens.push_back(static_cast<int32_t>(*text_.end));
    out_.counts.resize(out_.tokens.size());
    if (!is_answer) return;
    const size_t stop = after_last_stop(first);
    out_.stopped += stop > first ? 1 : 0;
    const size_t last = text_.ends_at_stop && stop > first ? stop : out_.tokens.size();
    std::fill(out_.counts.begin() + static_cast<ptrdiff_t>(first), out_.counts.begin() + static_cast<ptrdiff_t>(last),
              uint8_t{1});
  }

  void encode(TextRange part) {
    const std::string_view text = text_.text.substr(part.begin, part.end - part.begin);
    const std::vector<TextRange> contents = ranges_within(text_.contents, part);
    if (part.begin == 0) return tokenizer_.encode(text, out_.tokens, {Specials::parsed, contents});
    encode_continuation(tokenizer_, text, contents, out_.tokens.empty() ? previous_ : out_.tokens.back(), out_.tokens);
  }

  int32_t last_token_before(size_t end) const {
    std::vector<int32_t> ids;
    tokenizer_.encode(text_.text.substr(0, end), ids, {Specials::parsed, ranges_within(text_.contents, {0, end})});
    return ids.empty() ? -1 : ids.back();
  }

  // Returns the index after the last stop token from `first` on, or `first` if there is none.
  size_t after_last_stop(size_t first) const {
    for (size_t i = out_.tokens.size(); i > first; --i) {
      if (std::ranges::find(text_.stop_tokens, int64_t{out_.tokens[i - 1]}) != text_.stop_tokens.end()) return i;
    }
    return first;
  }

  const Tokenizer& tokenizer_;
  const AnswerText& text_;
  size_t at_;
  int32_t previous_ = -1;  // the token before the first one
  AnswerTokens out_;
};

}  // namespace

AnswerTokens encode_answers(const Tokenizer& tokenizer, const AnswerText& text) {
  return AnswerEncoder(tokenizer, text).run();
}

void encode_continuation(const Tokenizer& tokenizer, std::string_view text, std::span<const TextRange> contents, int32_t previous,
                         std::vector<int32_t>& out) {
  if (text.empty()) return;
  if (!adds_space_before(tokenizer)) return tokenizer.encode(text, out, {Specials::parsed, contents});
  // A known text before this one takes the space. Its tokens are left out.
  const bool follows_special = previous >= 0 && tokenizer.is_special(previous);
  std::vector<std::string> anchors{".", "\n", "0", "a"};
  if (follows_special) anchors = {tokenizer.token_of(previous)};
  for (const std::string& anchor : anchors) {
    std::vector<int32_t> ids;
    const std::vector<TextRange> moved = ranges_within(contents, {0, text.size()}, anchor.size());
    tokenizer.encode(anchor + std::string(text), ids, {Specials::parsed, moved});
    const bool is_found = follows_special && !ids.empty() && ids[0] == previous;
    const size_t skipped = is_found ? 1 : tokens_of_anchor(tokenizer, ids, anchor);
    if (skipped == 0) continue;
    out.insert(out.end(), ids.begin() + static_cast<ptrdiff_t>(skipped), ids.end());
    return;
  }
  fault("the tokenizer joins the text '{}' with what is before it, so an answer cannot begin there: use another tokenizer",
        text.substr(0, 40));
}

}  // namespace zt::data
