#include "unit_squares.h"

#include <algorithm>

#include "copies.h"
#include "zt/base/tensor.h"

namespace zt {

Slice counted_piece(const Unit& unit, const std::vector<std::string>& axes, const StepState& state) {
  const std::vector<std::string> copies = copy_axes(unit, axes, state), &stages = state.links->place().split_axes;
  const bool spans_stages =
      std::ranges::any_of(axes, [&](const std::string& axis) { return std::ranges::find(stages, axis) != stages.end(); });
  const int holders = spans_stages ? static_cast<int>(unit.holders.size()) : 1;
  const int holder = spans_stages ? unit.holder : 0;
  const int piece = state.links->place().coord.index(copies) * holders + holder,
            pieces = state.links->place().coord.size(copies) * holders;
  const FlatLayout layout(unit.layout.end(unit.rank) - unit.layout.begin(unit.rank), pieces);
  return {layout.begin(piece), layout.end(piece) - layout.begin(piece)};
}

void add_piece(const at::Tensor& grad_shard, const Slice& piece, ExactSum& sum) {
  if (is_for_host(grad_shard)) add_squares(grad_shard, piece.first, piece.end(), sum);
  else sum.merge(ExactSum::from_state(squares_on_device(grad_shard, piece.first, piece.end()).cpu()));
}

}  // namespace zt
