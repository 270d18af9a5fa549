// Schedules with whole backwards.
// Y. Huang et al.: GPipe. NeurIPS 2019. D. Narayanan et al.: Efficient large-scale language model training on GPU clusters using
// Megatron-LM. SC 2021 (1F1B and interleaved). J. Lamy-Poirier: Breadth-first pipeline parallelism. MLSys 2023.
#include <algorithm>

#include "rank_writer.h"
#include "recipes.h"

namespace zt::pipe {

PipelineSchedule breadth_first(const Shape& shape) {
  const auto [p, v, m] = shape;
  PipelineSchedule schedule = empty_schedule(StagePlacement::loop, p, v, m);
  for (int rank = 0; rank < p; ++rank) {
    RankWriter writer(schedule, rank);
    for (int k = 0; k < v * m; ++k) writer.forward(k / m * p + rank);
    for (int k = 0; k < v * m; ++k) writer.backward((v - 1 - k / m) * p + rank);
  }
  return schedule;
}

PipelineSchedule gpipe(const Shape& shape) {
  return breadth_first({shape.ranks, 1, shape.micro_batches});
}

PipelineSchedule one_f_one_b(const Shape& shape) {
  const auto [p, v, m] = shape;
  PipelineSchedule schedule = empty_schedule(StagePlacement::loop, p, 1, m);
  for (int rank = 0; rank < p; ++rank) {
    RankWriter writer(schedule, rank);
    for (int k = 0; k < p - 1 - rank; ++k) writer.forward(rank);
    for (int k = 0; k < m; ++k) {
      writer.forward(rank);
      writer.backward(rank);
    }
  }
  return schedule;
}

// The k-th forward of a rank is one of chunk (k % pv) / p; backwards take the chunks from the last one on.
PipelineSchedule interleaved(const Shape& shape) {
  const auto [p, v, m] = shape;
  PipelineSchedule schedule = empty_schedule(StagePlacement::loop, p, v, m);
  for (int rank = 0; rank < p; ++rank) {
    RankWriter writer(schedule, rank);
    const auto chunk = [p = p, v = v](int k) { return k % (p * v) / p; };
    const int warm_up = std::min(m * v, 2 * (p - 1 - rank) + (v - 1) * p);
    for (int k = 0; k < warm_up; ++k) writer.forward(chunk(k) * p + rank);
    for (int k = 0; k < m * v; ++k) {
      if (k + warm_up < m * v) writer.forward(chunk(k + warm_up) * p + rank);
      writer.backward((v - 1 - chunk(k)) * p + rank);
    }
  }
  return schedule;
}

}  // namespace zt::pipe
