// Finds the blocks that hold the keys and values of the tokens with which a sequence begins.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_blocks.h"

namespace zt::infer {

// Keys and values of equal tokens differ if these do.
struct PrefixRoot {
  int64_t weights = 0;       // their version
  std::string adapter = {};  // its name; empty: none
  std::string salt = {};     // of requests that share nothing with others
  auto operator<=>(const PrefixRoot&) const = default;
};

// Each edge of the tree is the tokens of one full block, and each node holds that block. Whole tokens are compared, so no two
// prefixes can be mixed up. A node that only the tree holds is free memory that may still be of use: `evict` gives back those
// that were not used for the longest time, from the leaves on. Threads: one at a time.
class PrefixTree {
 public:
  // `block`: tokens of a block. `blocks` outlives the tree.
  PrefixTree(CacheBlocks& blocks, int64_t block);
  PrefixTree(const PrefixTree&) = delete;

  // Returns the blocks of as many of the first tokens as the tree has, at most `most` of them. Each has one hold more, which is
  // the caller's.
  std::vector<int32_t> find(const PrefixRoot& root, std::span<const int32_t> tokens, int64_t most);
  // Notes the full blocks of a sequence's first tokens: blocks[i] has the tokens from i * block on. Where the tree has these
  // tokens already, in another block, the sequence gets that one in place of its own.
  void add(const PrefixRoot& root, std::span<const int32_t> tokens, std::span<int32_t> blocks);
  // Ends the hold of a block that only the tree holds. Returns false if there is none.
  bool evict();
  // Forgets all prefixes of other versions of the weights.
  void keep_only(int64_t weights);

  int64_t size() const { return nodes_; }  // blocks that the tree holds

 private:
  struct Node {
    std::map<std::vector<int32_t>, Node> children;
    Node* parent = nullptr;
    const std::vector<int32_t>* edge = nullptr;  // the key of the node in its parent; null for a root
    int32_t block = -1;
    uint64_t time = 0;  // of the last use
  };

  std::vector<int32_t> edge_of(std::span<const int32_t> tokens, size_t index) const;
  void touch(Node& node);
  Node& add_child(Node& parent, std::vector<int32_t> edge, int32_t& block);
  void remove(Node& leaf);
  void remove_below(Node& node);

  CacheBlocks& blocks_;
  const size_t block_;
  std::map<PrefixRoot, Node> roots_;
  std::set<std::pair<uint64_t, Node*>> leaves_;
  int64_t nodes_ = 0;
  uint64_t time_ = 0;
};

}  // namespace zt::infer
