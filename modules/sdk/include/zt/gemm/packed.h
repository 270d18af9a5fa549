// Matrices of weights in packed formats: panels of the plain numbers, or quantised codes with scales.
//
// The layout of each format is described in modules/gemm/PACKED.md, and is the same on every processor. The module gemm registers
// the kernels; `require "zt"` loads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "zt/base/box.h"

namespace zt {

// How a GEMM reads the other operand.
enum class Activations : uint8_t {
  floating,  // as numbers of its dtype
  int8,      // rounded to 8 bits with a scale per row and group, so that sums within a group are exact. For int8 and int4
};

enum class PackFormat : uint8_t {
  plain,   // not packed: a tensor
  panels,  // the same numbers, in the order in which a GEMM reads them
  int8,    // 8 bits, symmetric
  int4,    // 4 bits: with a scale and a minimum per group, or symmetric
  nf4,     // 4 bits: the code book of QLoRA, whose scales are quantised again
};

constexpr auto words_of(PackFormat) {
  return std::array{"plain", "panels", "int8", "int4", "nf4"};
}
constexpr auto words_of(Activations) {
  return std::array{"float", "int8"};
}

struct PackSpec {
  PackFormat format = PackFormat::plain;
  int64_t group = 64;                    // consecutive columns that share a scale: 32, 64 or 128. Not read by plain and panels
  bool symmetric = false;                // int4 without minima
  at::ScalarType dtype = at::kBFloat16;  // of the numbers of `panels`: fp32 or bf16. Else not read
  Activations activations = Activations::floating;  // of GEMMs by packed_tensor; no part of the bytes
  bool nested = true;                               // nf4: scales are quantised again. Else not read
  bool operator==(const PackSpec&) const = default;
};

// A matrix [rows, columns] in packed form. `bytes` is [packed_bytes(spec, rows, columns)] of uint8, contiguous, on the CPU, and
// begins at a multiple of 64 bytes.
struct PackedMatrix {
  PackSpec spec;
  int64_t rows = 0, columns = 0;
  at::Tensor bytes;
};

struct Nf4Tensors;

// What a GEMM adds to its sums before it rounds them: first `bias` [columns of the result], then `residual` (of the result's
// shape, row-major), each if it is defined. They have the dtype of x.
struct GemmAddends {
  at::Tensor bias, residual;
};

// The kernels of packed matrices. Must be thread-safe. The functions below check arguments before they call them.
class PackedKernels {
 public:
  virtual ~PackedKernels();
  virtual int64_t bytes(const PackSpec& spec, int64_t rows, int64_t columns) const = 0;
  virtual void pack(const at::Tensor& weight, const PackedMatrix& into) const = 0;
  virtual at::Tensor unpack(const PackedMatrix& matrix, at::ScalarType dtype) const = 0;
  virtual PackedMatrix cut(const PackedMatrix& whole, std::span<const Share> rows, Share columns) const = 0;
  virtual bool can_join_nf4(std::span<const int64_t> rows, int64_t columns, bool is_nested) const = 0;
  virtual void import_nf4(std::span<const Nf4Tensors> parts, const PackedMatrix& into) const = 0;
  virtual void multiply(const at::Tensor& x, const PackedMatrix& w, const at::Tensor& out, Activations activations,
                        const GemmAddends& addends) const = 0;
  virtual void multiply_transposed(const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx) const = 0;
};
// Registers the kernels for the life of the process. Throws Misuse if there are some already.
void register_packed_kernels(std::shared_ptr<const PackedKernels> kernels);

// Throws Misuse if there are no matrices of this spec: it is plain, the group is not 32, 64 or 128 (nf4: not 64), panels are not
// of fp32 or bf16, or an option belongs to another format.
void check_pack_spec(const PackSpec& spec);
// Returns the bytes of a packed matrix. Throws Misuse as check_pack_spec, and if `columns` is no multiple of the group.
int64_t packed_bytes(const PackSpec& spec, int64_t rows, int64_t columns);
// Packs `weight` [into.rows, into.columns] (fp32, fp64, bf16 or fp16, row-major) into `into.bytes`. Each row is quantised by
// itself (nested nf4: each run of 256 groups). Throws Misuse if sizes do not fit, and Fault if an element is not finite.
void pack(const at::Tensor& weight, const PackedMatrix& into);
// Returns the matrix [rows, columns] that the packed one stands for, rounded once from fp32.
at::Tensor unpack(const PackedMatrix& matrix, at::ScalarType dtype);

// Returns the packed matrix of ranges of rows, one after the other, and of a range of columns, with the same values. Throws
// Misuse if there is none: if the columns are no whole groups, or for nested nf4 if the rows are no whole blocks of 256 groups.
PackedMatrix cut_packed(const PackedMatrix& whole, std::span<const Share> rows, Share columns);

// Computes out [m, rows] = x [m, columns] W^T plus the addends. x and out are row-major, and of the same dtype (fp32, bf16 or
// fp16) or out is fp32; sums are in fp32 and rounded once. The bits of a row of `out` depend only on this row of x and of the
// residual, on W and on the bias, not on m or the processor. Meta tensors: only checks the arguments, and counts operations
// (FlopWatch).
void packed_gemm(const at::Tensor& x, const PackedMatrix& w, const at::Tensor& out, Activations activations,
                 const GemmAddends& addends = {});
// Computes dx [m, columns] = dy [m, rows] W, likewise, with `floating` activations.
void packed_gemm_transposed(const at::Tensor& dy, const PackedMatrix& w, const at::Tensor& dx);

// Returns a tensor [rows, columns] of `dtype`, that of the other operand, which stands for the matrix. It has no elements that
// operators could read: only packed_matrix and functions that call it take it.
at::Tensor packed_tensor(PackedMatrix matrix, at::ScalarType dtype);
// Returns the matrix for which the tensor stands, or null for any other tensor.
const PackedMatrix* packed_matrix(const at::Tensor& tensor);

}  // namespace zt
