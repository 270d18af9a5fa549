// Schedules with whole backwards.
// Y. Huang et al.: GPipe. NeurIPS 2019. D. Narayanan et al.: Efficient large-scale language model training on GPU clusters using
// Megatron-LM. SC 2021 (1F1B and interleaved). J. Lamy-Poirier: Breadth-first pipeline parallelism. MLSys 2023.
#include <algorithm>

#include "rank_writer.h"

namespace zt::pipe {

// With one chunk per rank it is GPipe.
PipelineSchedule breadth_first(const Shape& shape) {
  return write_ranks(StagePlacement::loop, shape,
                     [p = shape.ranks, v = shape.chunks, m = shape.micro_batches](RankWriter& writer, int rank) {
                       for (int k = 0; k < v * m; ++k) writer.forward(k / m * p + rank);
                       for (int k = 0; k < v * m; ++k) writer.backward((v - 1 - k / m) * p + rank);
                     });
}

PipelineSchedule one_f_one_b(const Shape& shape) {
  return write_ranks(StagePlacement::loop, shape, [p = shape.ranks, m = shape.micro_batches](RankWriter& writer, int rank) {
    for (int k = 0; k < p - 1 - rank; ++k) writer.forward(rank);
    for (int k = 0; k < m; ++k) {
      writer.forward(rank);
      writer.backward(rank);
    }
  });
}

// The k-th forward of a rank is one of chunk (k % pv) / p; backwards take the chunks from the last one on.
PipelineSchedule interleaved(const Shape& shape) {
  return write_ranks(StagePlacement::loop, shape,
                     [p = shape.ranks, v = shape.chunks, m = shape.micro_batches](RankWriter& writer, int rank) {
                       const auto chunk = [=](int k) { return k % (p * v) / p; };
                       const int warm_up = std::min(m * v, 2 * (p - 1 - rank) + (v - 1) * p);
                       for (int k = 0; k < warm_up; ++k) writer.forward(chunk(k) * p + rank);
                       for (int k = 0; k < m * v; ++k) {
                         if (k + warm_up < m * v) writer.forward(chunk(k + warm_up) * p + rank);
                         writer.backward((v - 1 - chunk(k)) * p + rank);
                       }
                     });
}

}  // namespace zt::pipe
