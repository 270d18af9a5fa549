#include "huggingface/split/split_text.h"

namespace zt::data::huggingface {

namespace {

// Joins spans as the behavior says: a joined span is not a match.
void join_spans(std::vector<PatternSpan>& spans, MatchBehavior behavior) {
  std::vector<PatternSpan> joined;
  bool was_match = false;
  const auto add = [&](const PatternSpan& span, bool joins) {
    if (joins && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, span.begin);
      joined.back().end = std::max(joined.back().end, span.end);
    } else {
      joined.push_back({span.begin, span.end, false});
    }
    was_match = span.is_match;
  };
  if (behavior == MatchBehavior::merged_with_next) {
    for (size_t i = spans.size(); i-- > 0;) add(spans[i], spans[i].is_match && !was_match);
    std::reverse(joined.begin(), joined.end());
  } else {
    const bool is_contiguous = behavior == MatchBehavior::contiguous;
    for (const PatternSpan& span : spans) {
      add(span, is_contiguous ? span.is_match == was_match : span.is_match && !was_match);
    }
  }
  spans = std::move(joined);
}

}  // namespace

SplitText::SplitText(std::string_view text, size_t origin) : text_(text), origin_(origin) {
  if (!text.empty()) words_.push_back({0, text.size()});
}

void SplitText::append_parts(std::vector<PatternSpan>& spans, MatchBehavior behavior, size_t begin,
                             std::vector<TextRange>& parts) {
  const bool removes = behavior == MatchBehavior::removed;
  if (!removes && behavior != MatchBehavior::isolated) join_spans(spans, behavior);
  for (const PatternSpan& span : spans) {
    if (span.begin < span.end && !(removes && span.is_match)) parts.push_back({begin + span.begin, begin + span.end});
  }
}

void SplitText::replace_words(std::string text, std::vector<TextRange> words, size_t origin) {
  owned_ = std::move(text);
  text_ = owned_;
  words_ = std::move(words);
  origin_ = origin;
}

}  // namespace zt::data::huggingface
