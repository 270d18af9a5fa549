#include "nccl/device_tree.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include <bit>
#include <tuple>
#include <vector>

#include "core/reduce_tree.h"

namespace zt::comm {

namespace {

// Returns the signed type of the same size for unsigned types that ATen cannot add. Sums and products wrap to the same bits.
at::ScalarType addable(at::ScalarType dtype) {
  switch (dtype) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    default:
      return dtype;
  }
}

// Writes `a` op `b` to `to`, which may be `a` or `b`. A 16-bit float is widened if the other operand is fp32.
void combine(at::Tensor to, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  const bool is_bool = a.scalar_type() == at::kBool;
  switch (op) {
    case ReduceOp::sum:
      is_bool ? at::logical_or_out(to, a, b) : at::add_out(to, a, b);
      return;
    case ReduceOp::product:
      is_bool ? at::logical_and_out(to, a, b) : at::mul_out(to, a, b);
      return;
    case ReduceOp::max:
      is_bool ? at::logical_or_out(to, a, b) : at::maximum_out(to, a, b);
      return;
    case ReduceOp::min:
      is_bool ? at::logical_and_out(to, a, b) : at::minimum_out(to, a, b);
      return;
  }
}

at::Tensor tree(std::span<const at::Tensor> sources, ReduceOp op);

// Returns the two operands of the last step. The left one has the type in which sums are accumulated.
std::tuple<at::Tensor, at::Tensor> halves(std::span<const at::Tensor> sources, ReduceOp op) {
  const size_t middle = std::bit_floor(sources.size() - 1);
  const at::Tensor left = tree(sources.first(middle), op);
  return {is_half_width(left.scalar_type()) ? left.to(at::kFloat) : left, tree(sources.subspan(middle), op)};
}

// Returns the source itself if there is only one, else scratch, which may be overwritten.
at::Tensor tree(std::span<const at::Tensor> sources, ReduceOp op) {
  if (sources.size() == 1) return sources[0];
  const auto [left, right] = halves(sources, op);
  const at::Tensor to = left.is_same(sources[0]) ? at::empty_like(left) : left;
  combine(to, left, right, op);
  return to;
}

}  // namespace

bool is_reducible_on_device(at::ScalarType dtype, ReduceOp op) {
  const bool adds = op == ReduceOp::sum || op == ReduceOp::product;
  return is_reducible(dtype) && (adds || addable(dtype) == dtype);
}

void device_tree(const at::Tensor& out, std::span<const at::Tensor> sources, ReduceOp op) {
  const at::ScalarType dtype = out.scalar_type();
  if (addable(dtype) != dtype) {
    std::vector<at::Tensor> views;
    for (const auto& source : sources) views.push_back(source.view(addable(dtype)));
    return device_tree(out.view(addable(dtype)), views, op);
  }
  if (sources.size() == 1 || is_half_width(out.scalar_type())) {
    out.copy_(tree(sources, op));  // rounds 16-bit floats, once
    return;
  }
  const auto [left, right] = halves(sources, op);
  combine(out, left, right, op);
}

}  // namespace zt::comm
