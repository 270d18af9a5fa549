#include "crossing.h"

#include <ATen/ATen.h>

#include "function.h"
#include "zt/base/rows.h"

namespace zt::nn {

at::Tensor Crossing::shaped(const at::Tensor& rows, const at::Tensor& like) const {
  if (!gathers()) return in_shape_of(like, rows);
  auto shape = sizes(like);
  shape.back() = rows.size(-1);
  return at::_unsafe_view(rows, shape);
}

MoveResult Crossing::to_parts(const at::Tensor& x) const {
  return gathers() ? start_gather(*context_, axis_, x, 1, *tokens_, async()) : MoveResult{x, {}};
}

MoveResult Crossing::to_stream(const at::Tensor& part) const {
  if (!context_) return {part, {}};
  return gathers() ? start_share_of_sum(*context_, axis_, part, 1, sums_, async())
                   : start_sum(*context_, axis_, part, sums_, async());
}

std::vector<MoveResult> cross(const at::Tensor& x, const Crossing& enter, const Crossing& leave,
                              const std::function<at::Tensor(const at::Tensor& x, int64_t first)>& compute) {
  constexpr int64_t kPieces = 4;
  const bool is_by_sample = enter.gathers() || leave.gathers();
  const at::Tensor whole = is_by_sample ? x : as_rows(x);  // shares of tokens stay in dim 1
  const auto pieces =
      enter.overlaps_to_parts() || leave.overlaps_to_stream() ? std::clamp<int64_t>(whole.size(0), 1, kPieces) : 1;
  std::vector<MoveResult> entered, left;
  for (int64_t i = 0; i < pieces; ++i) {
    const Share part = share_of(whole.size(0), static_cast<int>(pieces), static_cast<int>(i));
    entered.push_back(enter.to_parts(rows_of(whole, part.begin, part.count)));
  }
  int64_t first = 0;
  for (MoveResult& piece : entered) {
    const at::Tensor in = std::exchange(piece, {}).wait();
    left.push_back(leave.to_stream(compute(in, first)));
    first += in.size(-1) == 0 ? 0 : in.numel() / in.size(-1);
  }
  return left;
}

at::Tensor joined_rows(const std::vector<at::Tensor>& rows) {
  return rows.size() == 1 ? rows.front() : at::cat(rows);
}

at::Tensor joined_pieces(const std::vector<MoveResult>& pieces, const at::Tensor& like) {
  std::vector<at::Tensor> results;
  for (const MoveResult& piece : pieces) results.push_back(piece.wait());
  const at::Tensor all = joined_rows(results);
  return all.dim() == like.dim() ? all : in_shape_of(like, all);
}

}  // namespace zt::nn
