// Schedules with split backwards by fixed recipes.
// P. Qi et al.: Zero bubble pipeline parallelism. ICLR 2024 (ZB-H1, ZB-H2). P. Qi et al.: Pipeline parallelism with controllable
// memory. NeurIPS 2024 (ZB-V). DeepSeek-AI: DualPipe, and its variant without copies of the model, DualPipeV. 2025.

#include "rank_writer.h"

namespace zt::pipe {

PipelineSchedule zb_h1(const Shape& shape) {
  return write_ranks(StagePlacement::loop, shape, [p = shape.ranks, m = shape.micro_batches](RankWriter& writer, int rank) {
    for (int k = 0; k < p - 1 - rank; ++k) writer.forward(rank);
    for (int k = 0; k < m; ++k) {
      writer.forward(rank);
      writer.input_grad(rank);
      if (k >= rank) writer.weight_grad();
    }
    writer.all_weight_grads();
  });
}

PipelineSchedule zb_h2(const Shape& shape) {
  return write_ranks(StagePlacement::loop, shape, [p = shape.ranks, m = shape.micro_batches](RankWriter& writer, int rank) {
    for (int k = 0; k < 2 * (p - rank) - 1; ++k) writer.forward(rank);
    for (int k = 0; k < m; ++k) {
      writer.input_grad(rank);
      if (k >= 2 * rank) writer.weight_grad();
      writer.forward(rank);
    }
    writer.all_weight_grads();
  });
}

// Needs 2p - 1 micro-batches. Each rank has the stage `front` of the first half of the model, and `back` of the second.
PipelineSchedule zb_v(const Shape& shape) {
  return write_ranks(StagePlacement::v, shape, [p = shape.ranks, m = shape.micro_batches](RankWriter& writer, int rank) {
    const int front = rank, back = 2 * p - 1 - rank;
    const auto backward = [&](int stage) {
      writer.input_grad(stage);
      writer.weight_grad(stage);
    };
    for (int k = 0; k < 2 * (p - rank) - 1; ++k) writer.forward(front);
    for (int k = 0; k < rank; ++k) {
      writer.forward(back);
      writer.forward(front);
    }
    for (int k = 0; k < p - rank; ++k) {
      writer.forward(back);
      backward(back);
    }
    while (writer.forwards(front) < m || writer.forwards(back) < m) {
      writer.forward(front);
      backward(front);
      writer.forward(back);
      backward(back);
    }
    for (int k = 0; k < rank; ++k) {
      writer.input_grad(front);
      writer.input_grad(back);
    }
    for (int k = 0; k < p - rank; ++k) backward(front);
    for (int k = 0; k < m; ++k) writer.weight_grad(back);
    writer.all_weight_grads();
  });
}

// Needs 2p micro-batches.
PipelineSchedule dualpipe_v(const Shape& shape) {
  return write_ranks(StagePlacement::v, shape, [p = shape.ranks, m = shape.micro_batches](RankWriter& writer, int rank) {
    const int front = rank, back = 2 * p - 1 - rank, after = p - rank - 1;  // `after`: ranks after this one
    for (int k = 0; k < 2 * after; ++k) writer.forward(front);
    for (int k = 0; k < rank + 1; ++k) {
      writer.forward(front);
      writer.forward(back);
    }
    for (int k = 0; k < after; ++k) {
      writer.input_grad(back);
      writer.weight_grad();
      writer.forward(back);
    }
    for (int k = 0; k < m - 2 * p + rank + 1; ++k) {
      if (k == 0 && after == 0) {  // on the last rank the forward gives the backward its input
        writer.forward(front);
        writer.backward(back);
      } else {
        writer.overlapped(front, back);
      }
      writer.overlapped(back, front);
    }
    for (int k = 0; k < after; ++k) {
      writer.backward(back);
      writer.overlapped(back, front);
    }
    for (int k = 0; k < 2 * (rank + 1); ++k) {  // the second half is split
      const int stage = k % 2 == 0 ? back : front;
      if (k > rank) writer.input_grad(stage);
      else writer.backward(stage);
    }
    for (int k = 0; k < after; ++k) {
      writer.weight_grad();
      writer.input_grad(front);
    }
    writer.all_weight_grads();
  });
}

}  // namespace zt::pipe
