// A set of byte strings with a number each, searched for the prefixes of a text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace zt::data::huggingface {

// Threads: any. Its content never changes.
class ByteTrie {
 public:
  // No string has this number.
  static constexpr int32_t kNone = -1;

  ByteTrie() { first_.fill(0); }
  // Of equal strings, the last one's number counts. Empty strings are left out. Numbers are not negative.
  explicit ByteTrie(std::vector<std::pair<std::string, int32_t>> strings);

  bool empty() const { return nodes_.size() < 2; }
  // Returns whether a string starts with this byte.
  bool has_first(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

  // Calls visit(size, number) for each string with which `text` starts, the shortest first.
  template <class Visit>
  void visit_prefixes(std::string_view text, Visit&& visit) const {
    if (text.empty()) return;
    uint32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t size = 1; node != 0; ++size) {
      if (nodes_[node].number != kNone) visit(size, nodes_[node].number);
      if (size == text.size()) return;
      node = child(nodes_[node], text[size]);
    }
  }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edges = 0;
    int32_t number = kNone;
  };
  struct Range {
    size_t begin, end, depth;
    uint32_t node;
  };

  uint32_t child(const Node& node, char byte) const {
    const auto label = static_cast<unsigned char>(byte);
    uint32_t low = node.first_edge, high = node.first_edge + node.edges;
    while (high - low > 4) {
      const uint32_t middle = (low + high) / 2;
      (labels_[middle] <= label ? low : high) = middle;
    }
    for (; low < high; ++low) {
      if (labels_[low] == label) return targets_[low];
    }
    return 0;
  }

  std::vector<Node> nodes_;            // node 0 is the root
  std::vector<unsigned char> labels_;  // the edges of a node lie side by side, in the order of their labels
  std::vector<uint32_t> targets_;
  std::array<uint32_t, 256> first_;  // the children of the root; 0: none
};

}  // namespace zt::data::huggingface
