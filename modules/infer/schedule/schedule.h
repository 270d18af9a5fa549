// Which tokens a step of the engine computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"

namespace zt::infer {

// One copy of a request, as the scheduler sees it. Plain data.
struct TokenSequence {
  PrefixRoot root = {};
  std::vector<int32_t> tokens = {};  // of the prompt and of the answer so far; at least one
  int64_t drafts = 0;                // guesses for the tokens after these that a step may check
  bool needs_all_logits = false;     // also those of the prompt, so nothing of it is taken from the tree of prefixes

  int64_t computed = 0;              // tokens whose keys and values are in the cache
  std::vector<int32_t> blocks = {};  // they have these, and room for those of the next step
  bool is_running = false;           // it has computed tokens, or takes part in this step

  int64_t left() const { return static_cast<int64_t>(tokens.size()) - computed; }
};

// The bounds of a step.
struct StepLimits {
  int64_t rows = 512;      // tokens that a step computes
  int64_t sequences = 64;  // that take part, and that have blocks
  int64_t block = 16;      // tokens of a block
  bool has_prefixes = true;
};

// The memory of a replica: its blocks, and which tokens they hold.
struct CacheBooks {
  CacheBooks(int32_t count, int64_t block) : blocks(count), tree(blocks, block) {}
  // Takes a free block, or one that only the tree holds.
  std::optional<int32_t> take();

  CacheBlocks blocks;
  PrefixTree tree;
};

// A sequence's part in a step: its next `rows` tokens, of which the last `drafts` are guesses.
struct StepPart {
  size_t sequence = 0;  // its place in the list
  int64_t rows = 0, drafts = 0;
  bool operator==(const StepPart&) const = default;
};
struct StepPlan {
  std::vector<StepPart> parts = {};
  std::vector<size_t> put_back = {};  // sequences that gave their blocks back, and are computed again later
};

// Chooses the parts of the next step, and takes their blocks. `sequences`: in the order of arrival. Every running sequence that
// has one token left gets its row, then the guesses, and then the prompts, oldest first, in chunks until the step is full (Holmes
// et al., DeepSpeed-FastGen, 2024). A sequence that lacks a block for its row takes those of the youngest. No sequence overtakes
// an older one that waits. Requires that each sequence alone fits in all blocks, and that limits.rows >= limits.sequences.
StepPlan schedule(std::span<TokenSequence* const> sequences, const StepLimits& limits, CacheBooks& books);

// Notes that `tokens` more tokens of a sequence are in the cache, and tells the tree of blocks that are full now.
void note_computed(TokenSequence& sequence, int64_t tokens, const StepLimits& limits, CacheBooks& books);
// Gives all blocks of a sequence back.
void give_back(TokenSequence& sequence, CacheBooks& books);

// Returns the blocks that a sequence of so many tokens needs.
constexpr int64_t blocks_of(int64_t tokens, int64_t block) {
  return (tokens + block - 1) / block;
}

}  // namespace zt::infer
