#include "zt/gemm/packed_stack.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <functional>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kPackAlign - 1) / kPackAlign * kPackAlign;
}

void check_stack(const PackedStack& stack) {
  const int64_t bytes = packed_bytes(stack.spec, stack.shape);
  const at::Tensor& held = stack.bytes;
  if (held.defined() && held.scalar_type() == at::kByte && held.dim() == 1 && held.size(0) == bytes && held.is_contiguous())
    return;
  misuse("packed matrices of shape [{}] have {} contiguous bytes, got {}", fmt::join(stack.shape, ", "), bytes,
         held.defined() ? describe(held) : "nothing");
}

// Calls body for each matrix of which the box has a part, with the ranges of its rows and columns.
void for_each_matrix(const Box& box, const std::function<void(int64_t matrix, Share rows, Share columns)>& body) {
  const size_t dims = box.begin.size();
  const Share rows{box.begin[dims - 2], box.end[dims - 2] - box.begin[dims - 2]};
  const Share columns{box.begin[dims - 1], box.end[dims - 1] - box.begin[dims - 1]};
  if (dims == 2) return body(0, rows, columns);
  for (int64_t matrix = box.begin[0]; matrix < box.end[0]; ++matrix) body(matrix, rows, columns);
}

}  // namespace

PackedMatrix PackedStack::matrix(int64_t index) const {
  const int64_t size = packed_bytes(spec, rows(), columns());
  return {spec, rows(), columns(), bytes.narrow(0, index * aligned(size), size)};
}

int64_t packed_bytes(const PackSpec& spec, std::span<const int64_t> shape) {
  if (shape.size() == 2) return packed_bytes(spec, shape[0], shape[1]);
  if (shape.size() != 3) misuse("a matrix or a stack of matrices is packed, not a tensor of shape [{}]", fmt::join(shape, ", "));
  return shape[0] * aligned(packed_bytes(spec, shape[1], shape[2]));
}

void pack(const at::Tensor& weights, const PackedStack& into) {
  check_stack(into);
  if (weights.sizes() != at::IntArrayRef(into.shape))
    misuse("cannot pack {} into matrices of shape [{}]", describe(weights), fmt::join(into.shape, ", "));
  if (into.shape.size() == 2) return pack(weights, into.matrix(0));
  for (int64_t i = 0; i < into.matrices(); ++i)
    with_context([&] { return fmt::format("matrix {}", i); }, [&] { pack(weights.select(0, i), into.matrix(i)); });
}

at::Tensor unpack(const PackedStack& stack, at::ScalarType dtype) {
  check_stack(stack);
  if (stack.shape.size() == 2) return unpack(stack.matrix(0), dtype);
  const at::Tensor all = at::empty(stack.shape, stack.bytes.options().dtype(dtype));
  for (int64_t i = 0; i < stack.matrices(); ++i) all.select(0, i).copy_(unpack(stack.matrix(i), dtype));
  return all;
}

PackedStack cut_packed(const PackedStack& whole, std::span<const Box> boxes, const std::vector<int64_t>& shape) {
  check_stack(whole);
  PackedStack part{whole.spec, shape, at::zeros({packed_bytes(whole.spec, shape)}, at::kByte)};
  std::vector<std::vector<Share>> rows(static_cast<size_t>(whole.matrices()));
  const int64_t columns_of_part = part.columns();
  Share columns{0, columns_of_part};
  for (const Box& box : boxes) {
    for_each_matrix(box, [&](int64_t matrix, Share of_box, Share columns_of_box) {
      rows[static_cast<size_t>(matrix)].push_back(of_box);
      columns = columns_of_box;
    });
    if (columns.count != columns_of_part)
      misuse("a packed matrix that is cut into several ranges of columns has no packed bytes: give plain values");
  }
  int64_t next = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].empty()) continue;
    part.matrix(next++).bytes.copy_(cut_packed(whole.matrix(static_cast<int64_t>(i)), rows[i], columns).bytes);
  }
  return part;
}

}  // namespace zt
