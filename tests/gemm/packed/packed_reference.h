// Packed matrices read and multiplied number by number, as modules/gemm/PACKED.md describes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "zt/gemm/packed.h"

namespace zt::test {

// What the bytes of a packed matrix hold. Codes of int4 and nf4 are the numbers that they stand for.
struct UnpackedCodes {
  int64_t rows = 0, columns = 0, group = 0, groups = 0;  // columns: with the one that panels may add
  bool has_minima = false;
  std::vector<float> codes;           // [rows][columns]
  std::vector<float> scales, minima;  // [rows][groups]

  explicit UnpackedCodes(const PackedMatrix& matrix);

  float code(int64_t row, int64_t column) const { return codes[static_cast<size_t>(row * columns + column)]; }
  float scale(int64_t row, int64_t g) const { return scales[static_cast<size_t>(row * groups + g)]; }
  float minimum(int64_t row, int64_t g) const { return minima[static_cast<size_t>(row * groups + g)]; }
  float value(int64_t row, int64_t column) const;

 private:
  void read_panels(const PackedMatrix& matrix);
  void read_int8(const PackedMatrix& matrix);
  void read_int4(const PackedMatrix& matrix);
  void read_nf4(const PackedMatrix& matrix);
};

// These return fp32.
at::Tensor reference_values(const PackedMatrix& matrix);
at::Tensor reference_gemm(const at::Tensor& x, const PackedMatrix& matrix, Activations activations);
at::Tensor reference_gemm_transposed(const at::Tensor& dy, const PackedMatrix& matrix);

// Sets the number of threads for the life of the object. One thread is fastest for small matrices on a busy machine.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  const int before_;
};

// A set of kernels of this processor.
struct NamedKernels {
  std::string name;
  std::shared_ptr<const PackedKernels> kernels;
};
// Returns those of all instruction sets, and with and without the extensions.
std::vector<NamedKernels> all_packed_kernels();

// Returns bytes of the right number, with an arbitrary content.
PackedMatrix make_packed(const PackedKernels& kernels, const PackSpec& spec, int64_t rows, int64_t columns);
// Returns the packed `weight`.
PackedMatrix packed_from(const PackedKernels& kernels, const PackSpec& spec, const at::Tensor& weight);

// Returns all formats with all groups.
std::vector<PackSpec> all_pack_specs();
std::string describe_spec(const PackSpec& spec);

}  // namespace zt::test
