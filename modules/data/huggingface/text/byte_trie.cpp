#include "huggingface/text/byte_trie.h"

#include <algorithm>
#include <deque>

namespace zt::data::huggingface {

// Builds the trie level by level: the strings are sorted, and each node has a range of them.
ByteTrie::ByteTrie(std::vector<std::pair<std::string, int32_t>> strings) {
  first_.fill(0);
  std::stable_sort(strings.begin(), strings.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  nodes_.emplace_back();
  std::deque<Range> open{{0, strings.size(), 0, 0}};
  while (!open.empty()) {
    const Range range = open.front();
    open.pop_front();
    size_t at = range.begin;
    for (; at < range.end && strings[at].first.size() == range.depth; ++at) {
      if (range.depth > 0) nodes_[range.node].number = strings[at].second;
    }
    nodes_[range.node].first_edge = static_cast<uint32_t>(labels_.size());
    while (at < range.end) {
      const char byte = strings[at].first[range.depth];
      size_t end = at;
      while (end < range.end && strings[end].first[range.depth] == byte) ++end;
      const auto target = static_cast<uint32_t>(nodes_.size());
      labels_.push_back(static_cast<unsigned char>(byte));
      targets_.push_back(target);
      ++nodes_[range.node].edges;
      nodes_.emplace_back();
      open.push_back({at, end, range.depth + 1, target});
      if (range.depth == 0) first_[static_cast<unsigned char>(byte)] = target;
      at = end;
    }
  }
}

}  // namespace zt::data::huggingface
