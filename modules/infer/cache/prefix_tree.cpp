#include "cache/prefix_tree.h"

#include <algorithm>
#include <utility>

namespace zt::infer {

PrefixTree::PrefixTree(CacheBlocks& blocks, int64_t block) : blocks_(blocks), block_(static_cast<size_t>(block)) {}

std::vector<int32_t> PrefixTree::edge_of(std::span<const int32_t> tokens, size_t index) const {
  const auto part = tokens.subspan(index * block_, block_);
  return {part.begin(), part.end()};
}

void PrefixTree::touch(Node& node) {
  const bool is_leaf = leaves_.erase({node.time, &node}) > 0;
  node.time = ++time_;
  if (is_leaf) leaves_.emplace(node.time, &node);
}

std::vector<int32_t> PrefixTree::find(const PrefixRoot& root, std::span<const int32_t> tokens, int64_t most) {
  std::vector<int32_t> found;
  const auto begin = roots_.find(root);
  if (begin == roots_.end()) return found;
  Node* node = &begin->second;
  const size_t whole = std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(most, 0))) / block_;
  while (found.size() < whole) {
    const auto child = node->children.find(edge_of(tokens, found.size()));
    if (child == node->children.end()) break;
    node = &child->second;
    touch(*node);
    blocks_.hold(node->block);
    found.push_back(node->block);
  }
  return found;
}

PrefixTree::Node& PrefixTree::add_child(Node& parent, std::vector<int32_t> edge, int32_t& block) {
  const auto [place, is_new] = parent.children.try_emplace(std::move(edge));
  Node& node = place->second;
  if (!is_new) {
    touch(node);
    blocks_.hold(node.block);
    blocks_.release(std::exchange(block, node.block));
    return node;
  }
  leaves_.erase({parent.time, &parent});
  node.parent = &parent;
  node.edge = &place->first;
  node.block = block;
  node.time = ++time_;
  leaves_.emplace(node.time, &node);
  blocks_.hold(block);
  ++nodes_;
  return node;
}

void PrefixTree::add(const PrefixRoot& root, std::span<const int32_t> tokens, std::span<int32_t> blocks) {
  const size_t whole = std::min(blocks.size(), tokens.size() / block_);
  if (whole == 0) return;
  Node* node = &roots_[root];
  for (size_t i = 0; i < whole; ++i) node = &add_child(*node, edge_of(tokens, i), blocks[i]);
}

// The parent of the last child becomes a leaf itself.
void PrefixTree::remove(Node& leaf) {
  leaves_.erase({leaf.time, &leaf});
  blocks_.release(leaf.block);
  --nodes_;
  Node& parent = *leaf.parent;
  parent.children.erase(parent.children.find(*leaf.edge));
  if (parent.children.empty() && parent.parent) leaves_.emplace(parent.time, &parent);
}

bool PrefixTree::evict() {
  const auto unused =
      std::ranges::find_if(leaves_, [this](const auto& leaf) { return blocks_.holders(leaf.second->block) == 1; });
  if (unused == leaves_.end()) return false;
  remove(*unused->second);
  return true;
}

void PrefixTree::remove_below(Node& node) {
  for (auto& [edge, child] : node.children) {
    remove_below(child);
    leaves_.erase({child.time, &child});
    blocks_.release(child.block);
    --nodes_;
  }
  node.children.clear();
}

void PrefixTree::keep_only(int64_t weights) {
  for (auto root = roots_.begin(); root != roots_.end();) {
    if (root->first.weights == weights) {
      ++root;
      continue;
    }
    remove_below(root->second);
    root = roots_.erase(root);
  }
}

}  // namespace zt::infer
