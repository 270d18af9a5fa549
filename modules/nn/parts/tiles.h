// Work on a few rows at a time ("tiles"), so that what is large per row exists for these rows only.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "affine.h"

namespace zt::nn {

// Calls body(first, count) for the rows [first, first + count) of each tile, in order. All tiles have `tile` rows, except for the
// last one. Without rows it is called once, with a count of 0.
template <class Body>
void for_tiles(int64_t rows, int64_t tile, const Body& body) {
  int64_t first = 0;
  do {
    const int64_t count = std::min(tile, rows - first);
    body(first, count);
    first += count;
  } while (first < rows);
}

// Where the gradients of an Affine go. Made in the forward, used in its backward.
struct AffineSinks {
  AffineSinks(const Affine& affine, const AffineValues& values, Context& context)
      : weight(context.grad_sink(*affine.weight)),
        bias(affine.bias ? context.grad_sink(*affine.bias) : Context::SinkFn()),
        lora(values.lora) {}
  Context::SinkFn weight, bias;  // bias: null means no bias
  std::shared_ptr<LoraValues> lora;
};

// The gradients of one Affine, summed over tiles. Made in a backward, used once per tile, then finished.
//
// The sum over the tiles is complete before it is added to a sink that has a sum already: so a backward that the program splits,
// whose sinks are empty, gives the same bits. Only in this case, and for sinks of 16 bits, it needs memory of its own.
class TileGradient {
 public:
  // `dtype`: of the tiles. Calls the functions of the sinks.
  TileGradient(const AffineSinks& sinks, at::ScalarType dtype);
  // Adds dy^T x to the sum of the weight and the column sums of dy to that of the bias, and to those of adapters what `lora`
  // says: in fp32, or fp64 for fp64. dy: [rows, out], x: [rows, in]. `first`: the number of the tile's first row.
  void add(const at::Tensor& dy, const at::Tensor& x, const LoraPass& lora, int64_t first);
  // Adds the sums to the sinks.
  void finish();

 private:
  struct Sum {
    Context::Sink sink;
    at::Tensor values;  // the sink's view, or memory of its own
  };
  static Sum sum_for(Context::Sink sink, at::ScalarType dtype);

  Sum weight_, bias_;
  std::vector<Sum> of_lora_;
  bool is_first_ = true;
};

}  // namespace zt::nn
