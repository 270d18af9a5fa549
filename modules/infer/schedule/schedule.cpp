#include "schedule/schedule.h"

#include <algorithm>

namespace zt::infer {

std::optional<int32_t> CacheBooks::take() {
  std::optional<int32_t> block = blocks.take();
  if (!block && tree.evict()) block = blocks.take();
  return block;
}

namespace {

class StepSchedule {
 public:
  StepSchedule(std::span<TokenSequence* const> sequences, const StepLimits& limits, CacheBooks& books)
      : sequences_(sequences), limits_(limits), books_(books), left_(limits.rows) {
    running_ = std::ranges::count_if(sequences_, &TokenSequence::is_running);
  }

  StepPlan run() {
    add_single_rows();
    add_drafts();
    add_prompts();
    return std::move(plan_);
  }

 private:
  // Returns the number of tokens, at most `tokens`, for which the sequence has blocks now.
  int64_t make_room(TokenSequence& sequence, int64_t tokens) {
    while (static_cast<int64_t>(sequence.blocks.size()) < blocks_of(tokens, limits_.block)) {
      const std::optional<int32_t> block = books_.take();
      if (!block) return std::min<int64_t>(tokens, std::ssize(sequence.blocks) * limits_.block);
      sequence.blocks.push_back(*block);
    }
    return tokens;
  }

  size_t youngest() const {
    size_t index = sequences_.size();
    while (!sequences_[--index]->is_running) {
    }
    return index;
  }

  void put_back(size_t index) {
    give_back(*sequences_[index], books_);
    --running_;
    plan_.put_back.push_back(index);
  }

  void add(size_t index, int64_t rows) {
    plan_.parts.push_back({index, rows, 0});
    left_ -= rows;
  }

  void add_single_rows() {
    for (size_t i = 0; i < sequences_.size(); ++i) {
      TokenSequence& sequence = *sequences_[i];
      const auto has_room = [&] { return make_room(sequence, sequence.computed + 1) > sequence.computed; };
      while (sequence.is_running && sequence.left() == 1 && !has_room()) put_back(youngest());
      if (sequence.is_running && sequence.left() == 1) add(i, 1);
    }
  }

  // Nobody gives blocks back for guesses.
  void add_drafts() {
    for (StepPart& part : plan_.parts) {
      TokenSequence& sequence = *sequences_[part.sequence];
      const int64_t wanted = std::min(sequence.drafts, left_);
      if (wanted > 0) part.drafts = make_room(sequence, sequence.computed + 1 + wanted) - sequence.computed - 1;
      part.rows += part.drafts;
      left_ -= part.drafts;
    }
  }

  // Takes the blocks for all tokens that a sequence has, so that running prompts never wait for each other's. The logits of the
  // last token are needed: its row is computed in any case. Returns false if there are too few blocks now.
  bool start(TokenSequence& sequence) {
    if (limits_.has_prefixes && !sequence.needs_all_logits) {
      sequence.blocks = books_.tree.find(sequence.root, sequence.tokens, std::ssize(sequence.tokens) - 1);
      sequence.computed = std::ssize(sequence.blocks) * limits_.block;
    }
    const int64_t tokens = std::ssize(sequence.tokens);
    sequence.is_running = make_room(sequence, tokens) == tokens;
    if (sequence.is_running) ++running_;
    else give_back(sequence, books_);
    return sequence.is_running;
  }

  // A sequence that has just given its blocks back waits for a later step.
  void add_prompts() {
    for (size_t i = 0; i < sequences_.size() && left_ > 0; ++i) {
      TokenSequence& sequence = *sequences_[i];
      if (sequence.is_running) {
        if (sequence.left() > 1) add(i, std::min(left_, sequence.left()));
        continue;
      }
      if (running_ == limits_.sequences || !plan_.put_back.empty() || !start(sequence)) return;
      add(i, std::min(left_, sequence.left()));
    }
  }

  const std::span<TokenSequence* const> sequences_;
  const StepLimits& limits_;
  CacheBooks& books_;
  StepPlan plan_;
  int64_t left_;  // rows
  int64_t running_ = 0;
};

}  // namespace

StepPlan schedule(std::span<TokenSequence* const> sequences, const StepLimits& limits, CacheBooks& books) {
  return StepSchedule(sequences, limits, books).run();
}

void note_computed(TokenSequence& sequence, int64_t tokens, const StepLimits& limits, CacheBooks& books) {
  const int64_t before = sequence.computed / limits.block;
  sequence.computed += tokens;
  const int64_t full = sequence.computed / limits.block;
  if (limits.has_prefixes && full > before)
    books.tree.add(sequence.root, sequence.tokens, std::span(sequence.blocks).first(static_cast<size_t>(full)));
}

void give_back(TokenSequence& sequence, CacheBooks& books) {
  for (const int32_t block : sequence.blocks) books.blocks.release(block);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.is_running = false;
}

}  // namespace zt::infer
