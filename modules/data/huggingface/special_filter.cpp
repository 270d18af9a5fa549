#include "huggingface/special_filter.h"

#include <algorithm>

namespace zt::data::huggingface {

namespace {

// Returns the bytes of the original text that the bytes [begin, end) of the text come from.
TextRange source_of(const SpecialFilter& filter, size_t begin, size_t end) {
  if (filter.sources.empty()) return {filter.offset + begin, filter.offset + end};
  TextRange source = filter.sources[begin];
  for (size_t i = begin + 1; i < end; ++i) {
    source = {std::min(source.begin, filter.sources[i].begin), std::max(source.end, filter.sources[i].end)};
  }
  return source;
}

}  // namespace

bool overlaps_contents(const SpecialFilter& filter, size_t begin, size_t end) {
  const TextRange source = source_of(filter, begin, end);
  const auto next = std::partition_point(filter.contents.begin(), filter.contents.end(),
                                         [&](const TextRange& range) { return range.end <= source.begin; });
  return next != filter.contents.end() && next->begin < source.end;
}

size_t place_after_refusal(const SpecialFilter& filter, size_t begin, size_t end) {
  if (filter.refuses_all) return end;
  if (!overlaps_contents(filter, begin, begin + 1)) return begin + 1;
  size_t place = begin + 1;
  while (place < end && overlaps_contents(filter, place, place + 1)) ++place;
  return place;
}

}  // namespace zt::data::huggingface
