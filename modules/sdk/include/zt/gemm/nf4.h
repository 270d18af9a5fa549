// Reads matrices that bitsandbytes has quantised.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "zt/gemm/packed.h"

namespace zt {

// The tensors of a matrix that bitsandbytes has quantised with quant_type "nf4" and blocksize 64, by their names in its files.
// Without compressed statistics, `absmax` is fp32 and the last three are undefined and 0.
struct Nf4Tensors {
  int64_t rows = 0;
  at::Tensor weight;            // uint8, rows * columns / 2: two codes per byte, the first one in the upper 4 bits
  at::Tensor absmax;            // uint8, rows * columns / 64
  at::Tensor quant_map;         // fp32 [16]
  at::Tensor nested_absmax;     // fp32, one per 256 of absmax
  at::Tensor nested_quant_map;  // fp32 [256]
  double nested_offset = 0;
};

// Returns whether import_nf4 can join matrices of these numbers of rows: with nested scales, all but the last one must have whole
// blocks of 256 groups, which share a scale.
bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested);

// Writes `into.bytes`: the rows of the parts, one part after the other. unpack() then gives the bits of bitsandbytes'
// dequantize_4bit, also if `into` is not nested and the parts are. Throws Misuse if `into` is not nf4, it is nested and a part is
// not, a tensor does not have its dtype and size, or the parts cannot be joined, and Fault if quant_map is not that of nf4, a
// number is not finite, or nested parts differ in nested_quant_map.
void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into);

}  // namespace zt
