// Packed matrices of one size, one after the other, as a parameter of experts holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "zt/base/box.h"
#include "zt/gemm/packed.h"

namespace zt {

// A matrix, `shape` = [rows, columns], or several, [matrices, rows, columns]. Each begins at a multiple of kPackAlign bytes.
struct PackedStack {
  PackSpec spec;
  std::vector<int64_t> shape;
  at::Tensor bytes;  // [packed_bytes(spec, shape)] of uint8, as that of a PackedMatrix

  int64_t matrices() const { return shape.size() == 3 ? shape[0] : 1; }
  int64_t rows() const { return shape[shape.size() - 2]; }
  int64_t columns() const { return shape.back(); }
  // Returns one of them; its bytes are those of the stack.
  PackedMatrix matrix(int64_t index) const;
};

constexpr int64_t kPackAlign = 64;  // bytes

// Returns the bytes of a stack. Throws Misuse unless the shape has 2 or 3 dims, and as packed_bytes of a matrix does.
int64_t packed_bytes(const PackSpec& spec, std::span<const int64_t> shape);
// As pack and unpack of a matrix. `weights` and the result have the shape of the stack.
void pack(const at::Tensor& weights, const PackedStack& into);
at::Tensor unpack(const PackedStack& stack, at::ScalarType dtype);

// Returns the stack of the boxes' elements, of the shape `shape`, with the same values. Throws Misuse if there is none, as
// cut_packed of a matrix does, or if boxes of one matrix have different columns.
PackedStack cut_packed(const PackedStack& whole, std::span<const Box> boxes, const std::vector<int64_t>& shape);

// Returns a tensor of the stack's shape, which stands for it: as packed_tensor of a matrix, if it is one.
at::Tensor packed_tensor(PackedStack stack, at::ScalarType dtype);
// Returns the tensor, of the same dtype, that stands for matrix `index` of the stack for which `tensor` stands; an undefined one
// if `tensor` stands for no stack.
at::Tensor packed_slice(const at::Tensor& tensor, int64_t index);

}  // namespace zt
