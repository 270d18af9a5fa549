#include "engine/step_plan.h"

#include <ATen/ops/tensor.h>

#include <numeric>

namespace zt::infer {

namespace {

at::Tensor row_of(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong).view({1, -1});
}

Batch batch_of(const std::vector<int64_t>& tokens, const std::vector<int64_t>& positions, const std::vector<int64_t>& logits_of) {
  return {{"tokens", row_of(tokens)}, {"positions", row_of(positions)}, {"logits_of", row_of(logits_of)}};
}

}  // namespace

PlannedStep plan_step(std::vector<AnswerPart> parts, int micro_batches) {
  int64_t left = 0;
  for (const AnswerPart& part : parts) left += part.rows;
  PlannedStep planned{.parts = std::move(parts),
                      .micro_batches = {},
                      .sequences = std::vector<std::vector<KvSequence>>(static_cast<size_t>(micro_batches))};
  size_t next = 0;
  for (int m = 0; m < micro_batches; ++m) {
    const int64_t share = (left + micro_batches - m - 1) / (micro_batches - m);
    std::vector<int64_t> tokens, positions, logits_of;
    for (; next < planned.parts.size() && (std::ssize(tokens) < share || m + 1 == micro_batches); ++next) {
      const AnswerPart& part = planned.parts[next];
      const TokenSequence& sequence = part.answer->sequence;
      const int64_t first = std::ssize(tokens), known = part.rows - std::ssize(part.guesses);
      planned.sequences[static_cast<size_t>(m)].push_back({first, part.rows, sequence.computed, sequence.blocks});
      for (int64_t i = 0; i < known; ++i) tokens.push_back(sequence.tokens[static_cast<size_t>(sequence.computed + i)]);
      tokens.insert(tokens.end(), part.guesses.begin(), part.guesses.end());
      for (int64_t i = 0; i < part.rows; ++i) positions.push_back(sequence.computed + i);
      for (int64_t i = part.rows - part.logits; i < part.rows; ++i) logits_of.push_back(first + i);
    }
    left -= std::ssize(tokens);
    planned.micro_batches.push_back(batch_of(tokens, positions, logits_of));
  }
  return planned;
}

std::vector<Batch> widest_step(const EngineOptions& options, int micro_batches) {
  const auto share = [&](int64_t of, int place) { return (of + place) / micro_batches; };  // sums to `of`
  std::vector<Batch> batches;
  for (int m = 0; m < micro_batches; ++m) {
    const auto rows = static_cast<size_t>(share(options.token_budget, m)),
               drawn = static_cast<size_t>(share(options.max_sequences, m));
    std::vector<int64_t> positions(rows), logits_of(drawn);
    for (size_t row = 0; row < rows; ++row) positions[row] = static_cast<int64_t>(row) % options.max_context;
    std::iota(logits_of.begin(), logits_of.end(), 0);
    batches.push_back(batch_of(std::vector<int64_t>(rows), positions, logits_of));
  }
  return batches;
}

}  // namespace zt::infer
