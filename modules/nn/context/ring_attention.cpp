// Keys and values go around the ranks (Liu et al. 2023). While a rank computes with those of one rank, those of the next are on
// their way. In the backward the sum of their gradients goes around after them.
#include <ATen/ATen.h>

#include "context_methods.h"
#include "zt/base/rows.h"

namespace zt::nn {

namespace {

// The keys and values [2, B, T, K D] of a rank's tokens, and their segments, if any.
struct RingBlock {
  at::Tensor keys_values, segments;
};

struct PassedBlock {
  PassedTensor keys_values, segments;

  RingBlock wait() const {
    keys_values.work.wait();
    segments.work.wait();
    return {keys_values.received, segments.received};
  }
};

// One turn of the ring. In step 0 a rank has its own block, in each later step the block that the rank before had.
class RingTurn {
 public:
  RingTurn(const ContextCall& call, const AttentionViews& own)
      : call_(call), queries_(own.queries), held_{at::stack({own.keys, own.values}), call.inputs.segments} {}

  // Calls body(step) with each block. The next block is on its way meanwhile.
  template <class Body>
  void run(const Body& body) {
    for (int step = 0; step < call_.ranks(); ++step) {
      source_ = source(step);
      const bool is_last = step + 1 == call_.ranks();
      const PassedBlock next = is_last ? PassedBlock{} : pass_block(source(step + 1));
      body(step);
      if (!is_last) held_ = next.wait();
    }
  }
  // Returns the rank whose block this rank has in a step.
  int source(int step) const { return (call_.places().rank + call_.ranks() - step % call_.ranks()) % call_.ranks(); }
  AttentionViews views() const { return {queries_, held_.keys_values[0], held_.keys_values[1]}; }
  const at::Tensor& keys_values() const { return held_.keys_values; }
  std::vector<int64_t> shape_of(int rank) const {
    std::vector<int64_t> shape = held_.keys_values.sizes().vec();
    shape[2] = call_.count(rank);
    return shape;
  }
  AttentionTokens tokens() const {
    return {PlaceRanges(call_.places().own()), PlaceRanges(call_.ranges(source_)), call_.places().total, call_.inputs.segments,
            held_.segments};
  }
  // Returns whether a query may see a key of the block.
  bool is_visible() const {
    const std::vector<Share>& own = call_.places().own();
    const TileRange seen = call_.inputs.sees.keys_of(own.front().begin, own.back().end() - 1, PlaceRanges(call_.ranges(source_)),
                                                     call_.places().total);
    return seen.begin < seen.end;
  }

 private:
  PassedBlock pass_block(int from) const {
    PassedBlock passed{pass_to_next(call_, held_.keys_values, shape_of(from)), {}};
    if (held_.segments.defined())
      passed.segments = pass_to_next(call_, held_.segments, {held_.segments.size(0), call_.count(from)});
    return passed;
  }

  const ContextCall& call_;
  at::Tensor queries_;
  RingBlock held_;
  int source_ = 0;
};

}  // namespace

BlockResult ring_forward(const ContextCall& call, const AttentionViews& own) {
  const at::Tensor& queries = own.queries;
  const auto wide = queries.options().dtype(wide_dtype(queries.scalar_type()));
  const auto empty_result = [&] {
    return BlockResult{at::empty(queries.sizes(), wide),
                       at::empty({queries.size(0), call.inputs.shape.heads, queries.size(1)}, wide)};
  };
  const BlockResult sum = empty_result();
  RingTurn ring(call, own);
  ring.run([&](int step) {
    if (!ring.is_visible()) return;
    const BlockResult block = step == 0 ? sum : empty_result();
    forward_block(call, block, ring.views(), ring.tokens());
    if (step > 0) merge_block(sum, block);
  });
  return {sum.out.to(queries.scalar_type()), sum.logsumexp};
}

void ring_backward(const ContextCall& call, const AttentionViews& grads, const at::Tensor& dout, const AttentionViews& own,
                   const BlockResult& result) {
  const auto wide = own.queries.options().dtype(wide_dtype(own.queries.scalar_type()));
  const at::Tensor queries = at::zeros(grads.queries.sizes(), wide);
  PassedTensor sums;  // of the gradients of a block's keys and values
  RingTurn ring(call, own);
  ring.run([&](int step) {
    const at::Tensor part = at::zeros(ring.keys_values().sizes(), wide);
    if (ring.is_visible())
      backward_block(call, {queries, part[0], part[1]}, GradientSum::add, dout, ring.views(), result, ring.tokens());
    if (step > 0) {
      sums.work.wait();
      part.add_(sums.received);
    }
    sums = pass_to_next(call, part, ring.shape_of(ring.source(step + 1)));
  });
  sums.work.wait();
  grads.queries.copy_(queries);
  grads.keys.copy_(sums.received[0]);
  grads.values.copy_(sums.received[1]);
}

}  // namespace zt::nn
