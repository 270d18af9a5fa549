// Schedules that repeat one pattern per micro-batch.
// P. Qi et al.: Pipeline parallelism with controllable memory. NeurIPS 2024 (V-Half, V-Min).
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "recipes.h"
#include "search.h"
#include "timing.h"

namespace zt::pipe {

namespace {

// A micro-batch passes each rank four times: with the forwards of its front and back stage, and their backwards for the inputs.
// Pass i moves to the next rank after step[i] units of time, and waits gap[i] units longer where one pass hands over to the next.
// All micro-batches do the same, one interval after the other, in which the two W's have their place, too. What a rank holds
// follows from how long a micro-batch takes from its first to its last pass.
constexpr int kInterval = 6;
struct VPattern {
  std::array<int, 4> step;
  std::array<int, 3> gap;  // before passes 1, 2 and 3
};

// Returns when each pass of micro-batch 0 is on the rank.
std::array<int, 4> times_of(const VPattern& pattern, int rank, int ranks) {
  std::array<int, 4> times{};
  int begin = 0;  // of the pass, on its first rank
  for (size_t pass = 0; pass < 4; ++pass) {
    const bool is_down = pass % 2 == 0;  // from rank 0 on
    times[pass] = begin + pattern.step[pass] * (is_down ? rank : ranks - 1 - rank);
    begin += pattern.step[pass] * (ranks - 1) + 1;
    if (pass < 3) begin += pattern.gap[pass];
  }
  return times;
}

// Returns whether the passes of all micro-batches find their rank free.
bool fits(const VPattern& pattern, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    std::set<int> slots;
    for (const int time : times_of(pattern, rank, ranks)) slots.insert(time % kInterval);
    if (slots.size() < 4) return false;
  }
  return true;
}

// Returns the patterns that fit whose steps add up to `sum`, those with the least waiting first.
std::vector<VPattern> patterns(int ranks, int sum) {
  std::multimap<int, VPattern> found;
  for (int bits = 0; bits < 16; ++bits) {
    VPattern pattern{};
    for (size_t pass = 0; pass < 4; ++pass) pattern.step[pass] = 1 + (bits >> pass & 1);
    if (pattern.step[0] + pattern.step[1] + pattern.step[2] + pattern.step[3] != sum) continue;
    for (int gaps = 0; gaps < kInterval * kInterval * kInterval; ++gaps) {
      pattern.gap = {gaps % kInterval, gaps / kInterval % kInterval, gaps / kInterval / kInterval};
      if (fits(pattern, ranks)) found.emplace(pattern.gap[0] + pattern.gap[1] + pattern.gap[2], pattern);
    }
  }
  std::vector<VPattern> sorted;
  for (const auto& [waiting, pattern] : found) sorted.push_back(pattern);
  return sorted;
}

// Returns the schedule with whole backwards in the order of the pattern.
PipelineSchedule repeat(const VPattern& pattern, const Shape& shape) {
  PipelineSchedule schedule = empty_schedule(StagePlacement::v, shape.ranks, 2, shape.micro_batches);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    std::map<int, Task> in_order;
    const auto times = times_of(pattern, rank, shape.ranks);
    for (int m = 0; m < shape.micro_batches; ++m) {
      for (int pass = 0; pass < 4; ++pass) {
        const bool is_front = pass == 0 || pass == 3;
        in_order[times[static_cast<size_t>(pass)] + kInterval * m] = {pass < 2 ? TaskKind::forward : TaskKind::backward,
                                                                      is_front ? rank : 2 * shape.ranks - 1 - rank, m};
      }
    }
    for (const auto& [time, task] : in_order) schedule.ranks[static_cast<size_t>(rank)].push_back({task});
  }
  return schedule;
}

// Returns the fastest schedule that holds at most `held` activations of half a rank's part, or else the one that holds least.
PipelineSchedule best_of_patterns(const Shape& shape, int sum, int held) {
  constexpr size_t kTried = 24;
  std::optional<PipelineSchedule> best;
  std::pair<int, double> best_cost;  // activations above the bound, seconds
  auto candidates = patterns(shape.ranks, sum);
  candidates.resize(std::min(candidates.size(), kTried));
  for (const VPattern& pattern : candidates) {
    PipelineSchedule schedule =
        split_backwards(repeat(pattern, shape), {}, std::vector<int>(static_cast<size_t>(shape.ranks), held));
    const Timing timing = time_schedule(schedule);
    const std::pair<int, double> cost(std::max(0, timing.most_held() - held), timing.seconds);
    if (best && cost >= best_cost) continue;
    best_cost = cost;
    best = std::move(schedule);
  }
  return *std::move(best);
}

}  // namespace

PipelineSchedule v_half(const Shape& shape) {
  return best_of_patterns(shape, 6, shape.ranks + 2);
}

PipelineSchedule v_min(const Shape& shape) {
  return best_of_patterns(shape, 4, (2 * shape.ranks + 2) / 3 + 2);
}

}  // namespace zt::pipe
