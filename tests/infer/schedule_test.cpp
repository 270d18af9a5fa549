#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>

namespace zt::infer {
namespace {

std::vector<int32_t> tokens_from(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(CacheBlocks, AreFreeAfterTheLastHold) {
  CacheBlocks blocks(2);
  EXPECT_EQ(blocks.take(), 0);
  blocks.hold(0);
  EXPECT_EQ(blocks.take(), 1);
  EXPECT_EQ(blocks.take(), std::nullopt);
  blocks.release(0);
  EXPECT_EQ(blocks.take(), std::nullopt);
  blocks.release(0);
  EXPECT_EQ(blocks.free(), 1);
  EXPECT_EQ(blocks.take(), 0);
}

class Prefixes : public testing::Test {
 protected:
  // Computes the tokens in new blocks, which the tree may keep.
  void add(const PrefixRoot& root, const std::vector<int32_t>& tokens) {
    std::vector<int32_t> taken;
    for (size_t i = 0; i < tokens.size() / 4; ++i) taken.push_back(*blocks_.take());
    tree_.add(root, tokens, taken);
    for (const int32_t block : taken) blocks_.release(block);
  }
  int64_t found(const PrefixRoot& root, const std::vector<int32_t>& tokens, int64_t most = 100) {
    const std::vector<int32_t> hits = tree_.find(root, tokens, most);
    for (const int32_t block : hits) blocks_.release(block);
    return std::ssize(hits);
  }

  CacheBlocks blocks_{16};
  PrefixTree tree_{blocks_, 4};
};

TEST_F(Prefixes, AreWholeBlocksOfEqualTokens) {
  add({}, tokens_from(0, 10));
  EXPECT_EQ(tree_.size(), 2);
  EXPECT_EQ(found({}, tokens_from(0, 100)), 2);
  EXPECT_EQ(found({}, tokens_from(0, 7)), 1);
  EXPECT_EQ(found({}, tokens_from(0, 8), 7), 1);
  EXPECT_EQ(found({}, tokens_from(1, 8)), 0);
  std::vector<int32_t> other = tokens_from(0, 8);
  other[7] = 99;
  EXPECT_EQ(found({}, other), 1);
}

TEST_F(Prefixes, OfAnotherRootAreOthers) {
  add({}, tokens_from(0, 4));
  EXPECT_EQ(found({.weights = 1}, tokens_from(0, 4)), 0);
  EXPECT_EQ(found({.adapter = "a"}, tokens_from(0, 4)), 0);
  EXPECT_EQ(found({.salt = "a"}, tokens_from(0, 4)), 0);
  add({.weights = 1}, tokens_from(0, 8));
  tree_.keep_only(1);
  EXPECT_EQ(found({}, tokens_from(0, 4)), 0);
  EXPECT_EQ(found({.weights = 1}, tokens_from(0, 8)), 2);
  EXPECT_EQ(blocks_.free(), 14);
}

TEST_F(Prefixes, ThatWereNotUsedForTheLongestTimeGoFirst) {
  add({}, tokens_from(0, 8));
  add({}, tokens_from(100, 4));
  EXPECT_EQ(found({}, tokens_from(0, 8)), 2);
  EXPECT_TRUE(tree_.evict());
  EXPECT_EQ(found({}, tokens_from(100, 4)), 0);
  const std::vector<int32_t> held = tree_.find({}, tokens_from(0, 8), 8);
  EXPECT_FALSE(tree_.evict());
  blocks_.release(held[1]);
  EXPECT_TRUE(tree_.evict()) << "the leaf, whose parent is still held";
  EXPECT_FALSE(tree_.evict());
  EXPECT_EQ(found({}, tokens_from(0, 8)), 1);
}

// Two sequences compute the same tokens at the same time: both use the blocks of the first then.
TEST_F(Prefixes, ThatAreThereAlreadyReplaceOthers) {
  add({}, tokens_from(0, 8));
  std::vector<int32_t> blocks{blocks_.take().value(), blocks_.take().value(), blocks_.take().value()};
  EXPECT_EQ(blocks, (std::vector<int32_t>{2, 3, 4}));
  tree_.add({}, tokens_from(0, 12), blocks);
  EXPECT_EQ(blocks, (std::vector<int32_t>{0, 1, 4}));
  EXPECT_EQ(tree_.size(), 3);
  EXPECT_EQ(blocks_.free(), 13);
}

// Sequences that arrive and grow, on the books of a cache.
class Replica {
 public:
  Replica(StepLimits limits, int32_t blocks) : limits_(limits), books_(blocks, limits.block) {}

  TokenSequence& submit(std::vector<int32_t> tokens, int64_t answer) {
    Running& made = all_.emplace_back();
    made.sequence.tokens = std::move(tokens);
    made.answer = answer;
    return made.sequence;
  }
  // Plans a step, checks it, and makes what the engine would.
  StepPlan step() {
    std::vector<TokenSequence*> waiting;
    std::vector<Running*> of;
    for (Running& running : all_) {
      if (running.answer == 0) continue;
      waiting.push_back(&running.sequence);
      of.push_back(&running);
    }
    const StepPlan plan = schedule(waiting, limits_, books_);
    check(plan, waiting);
    for (const StepPart& part : plan.parts) {
      TokenSequence& sequence = *waiting[part.sequence];
      rows_ += part.rows;
      note_computed(sequence, part.rows - part.drafts, limits_, books_);
      if (sequence.left() > 0) continue;
      if (--of[part.sequence]->answer == 0) give_back(sequence, books_);
      else sequence.tokens.push_back(static_cast<int32_t>(rows_ % 1000));
    }
    check_blocks();
    while (!all_.empty() && all_.front().answer == 0) all_.pop_front();
    return plan;
  }
  bool is_idle() const {
    return std::ranges::all_of(all_, [](const Running& running) { return running.answer == 0; });
  }
  int64_t rows() const { return rows_; }
  CacheBooks& books() { return books_; }

 private:
  struct Running {
    TokenSequence sequence;
    int64_t answer = 0;
  };

  void check(const StepPlan& plan, const std::vector<TokenSequence*>& waiting) const {
    int64_t rows = 0;
    std::vector<size_t> seen;
    for (const StepPart& part : plan.parts) {
      const TokenSequence& sequence = *waiting[part.sequence];
      rows += part.rows;
      ASSERT_GT(part.rows - part.drafts, 0);
      ASSERT_LE(part.rows - part.drafts, sequence.left());
      ASSERT_LE(part.drafts, sequence.drafts);
      ASSERT_LE(sequence.computed + part.rows, std::ssize(sequence.blocks) * limits_.block);
      seen.push_back(part.sequence);
    }
    ASSERT_LE(rows, limits_.rows);
    ASSERT_LE(std::ssize(plan.parts), limits_.sequences);
    std::ranges::sort(seen);
    ASSERT_TRUE(std::ranges::adjacent_find(seen) == seen.end());
    ASSERT_EQ(waiting.empty(), plan.parts.empty());
    // Nobody overtakes: those that run are the oldest, but for those that gave their blocks back.
    bool waits = false;
    for (size_t i = 0; i < waiting.size(); ++i) {
      ASSERT_FALSE(waits && waiting[i]->is_running) << i;
      waits = waits || !waiting[i]->is_running;
    }
  }

  // The holds of a block are those of sequences and of the tree; a block that is written has one holder.
  void check_blocks() {
    std::map<int32_t, int32_t> holds;
    for (const Running& running : all_) {
      const TokenSequence& sequence = running.sequence;
      for (size_t i = 0; i < sequence.blocks.size(); ++i) {
        ++holds[sequence.blocks[i]];
        const bool is_full = static_cast<int64_t>(i + 1) * limits_.block <= sequence.computed;
        ASSERT_TRUE(is_full || books_.blocks.holders(sequence.blocks[i]) == 1);
      }
    }
    int32_t used = 0, of_tree = 0;
    for (int32_t block = 0; block < books_.blocks.count(); ++block) {
      const int32_t holders = books_.blocks.holders(block);
      used += holders > 0 ? 1 : 0;
      ASSERT_LE(holders - holds[block], 1);
      ASSERT_GE(holders, holds[block]);
      of_tree += holders - holds[block];
    }
    ASSERT_EQ(used + books_.blocks.free(), books_.blocks.count());
    ASSERT_EQ(of_tree, books_.tree.size());
  }

  const StepLimits limits_;
  CacheBooks books_;
  std::deque<Running> all_;
  int64_t rows_ = 0;
};

TEST(Schedule, CutsAPromptAroundRunningSequences) {
  Replica replica({.rows = 8, .sequences = 4, .block = 4}, 100);
  replica.submit(tokens_from(0, 3), 100);
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 3, 0}}));
  replica.submit(tokens_from(50, 12), 100);
  replica.submit(tokens_from(90, 5), 100);
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 1, 0}, {1, 7, 0}}));
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 1, 0}, {1, 5, 0}, {2, 2, 0}}));
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 1, 0}, {1, 1, 0}, {2, 3, 0}}));
}

TEST(Schedule, ComputesOnlyWhatTheTreeOfPrefixesLacks) {
  Replica replica({.rows = 64, .sequences = 4, .block = 4}, 100);
  replica.submit(tokens_from(0, 12), 1);
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 12, 0}}));
  replica.submit(tokens_from(0, 12), 1);  // the last row is computed in any case
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 4, 0}}));
  replica.submit(tokens_from(0, 14), 1).needs_all_logits = true;
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 14, 0}}));
}

TEST(Schedule, TakesTheBlocksOfTheYoungest) {
  Replica replica({.rows = 64, .sequences = 4, .block = 4, .has_prefixes = false}, 3);
  replica.submit(tokens_from(0, 4), 9);
  replica.submit(tokens_from(50, 4), 5);
  EXPECT_EQ(replica.step().parts.size(), 2u);
  EXPECT_EQ(replica.step().put_back, std::vector<size_t>{1});  // both need a second block, and one is free
  while (!replica.is_idle()) replica.step();
  EXPECT_EQ(replica.rows(), (4 + 8) + 4 + (5 + 3)) << "the second one is computed again";
}

TEST(Schedule, ChecksGuessesWhereThereIsRoom) {
  Replica replica({.rows = 8, .sequences = 4, .block = 4, .has_prefixes = false}, 2);
  TokenSequence& sequence = replica.submit(tokens_from(0, 3), 9);
  replica.step();
  sequence.drafts = 6;
  EXPECT_EQ(replica.step().parts, (std::vector<StepPart>{{0, 5, 4}})) << "tokens 4 to 8 fill two blocks";
}

TEST(Schedule, KeepsItsBoundsForAnyArrivals) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int64_t arrivals = 0;
  for (int round = 0; round < 200; ++round) {
    StepLimits limits;
    limits.sequences = 1 + below(8);
    limits.rows = limits.sequences + below(40);
    limits.block = 1 + below(8);
    limits.has_prefixes = below(2) == 0;
    const int64_t longest = 10 + below(60);
    const int64_t least = blocks_of(2 * longest + 8, limits.block);
    Replica replica(limits, static_cast<int32_t>(least + below(3 * least)));
    for (int64_t step = 0, coming = 500; coming > 0 || !replica.is_idle(); ++step) {
      for (int64_t n = below(3); n > 0 && coming > 0; --n, --coming, ++arrivals) {
        TokenSequence& made = replica.submit(tokens_from(static_cast<int32_t>(below(3)), static_cast<size_t>(1 + below(longest))),
                                             1 + below(longest));
        made.drafts = below(4);
        made.needs_all_logits = below(5) == 0;
      }
      replica.step();
      if (testing::Test::HasFatalFailure()) FAIL() << "round " << round << ", step " << step;
    }
  }
  EXPECT_EQ(arrivals, 100000);
}

}  // namespace
}  // namespace zt::infer
