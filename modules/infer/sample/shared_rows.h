// Draws tokens where ranks share the vocabulary: each has the logits of some tokens, and sums and candidates travel, not logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sample/sampler.h"

namespace zt::infer {

// The tokens of this rank among those that share a vocabulary. Those of a rank follow those of the rank before it.
struct TokenShare {
  int64_t first = 0, count = 0;  // of this rank
  int64_t vocabulary = 0;        // tokens of all ranks
  int rank = 0;
  std::string axis = {};  // of the mesh, over whose ranks the vocabulary is cut
  // Returns a float64 tensor of equal shape of all ranks as [ranks, ...]. Collective over them.
  std::function<at::Tensor(const at::Tensor&)> gather;
};

// The questions about a row of logits. All ranks ask the same.
struct RowTask {
  std::span<const double> logits = {};       // of this rank's tokens
  const SamplingOptions* options = nullptr;  // null: nothing is drawn
  const TokenCounts* counts = nullptr;
  std::vector<int32_t> forbidden = {};
  double uniform = 0;
  std::optional<int64_t> top = {};    // the log-probabilities of the drawn token and of so many likeliest ones
  std::optional<int32_t> known = {};  // the log-probability of this token
};

struct RowResult {
  bool can_sample = false;    // as can_sample(logits of all tokens); false: nothing else is set
  SampledToken sampled = {};  // its token is -1 if none can be drawn
  double logprob = 0;         // of the drawn token, by the unchanged logits
  std::vector<std::pair<int32_t, double>> top = {};
  double known = 0;  // the log-probability of RowTask::known
};

// Returns the same as a Sampler with all logits would give, up to the rounding of sums, on every rank. A result depends on its
// own row only. Collective over the ranks: two or three gathers of some numbers for each row. Cut-offs first find, by sums over
// classes of logits, which tokens could remain; only these travel.
std::vector<RowResult> draw_shared(std::span<const RowTask> tasks, const TokenShare& share);

}  // namespace zt::infer
