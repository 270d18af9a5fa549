// GEMMs (products of matrices) by one of several libraries, called "providers". gemm_choice.h says which one multiplies what.
//
// The SDK has "aten" (what at::addmm calls: MKL for fp32 and fp64, LibTorch's oneDNN for 16-bit types) and "cublas" (tensors on
// CUDA). The module gemm registers "mkl" and "skinny"; other modules may register more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zt {

// What a product is for. It says how its operands lie: forward x W^T, input_gradient dy W, weight_gradient dy^T x.
enum class GemmKind : uint8_t { forward, input_gradient, weight_gradient };

// c [m, n] from a [m, k] and b [k, n]; dtype is that of a and b. alpha and beta are not part of the shape: a layer's weight
// gradient overwrites c in the first micro-batch and adds to it in others, and must get the same order of sums.
struct GemmShape {
  GemmKind kind = GemmKind::forward;
  at::ScalarType dtype = at::kFloat;
  int64_t m = 0, n = 0, k = 0;
  bool widens = false;  // c is fp32 beside a and b of 16 bits, as the sums of weight gradients are
};

// c = alpha a b + beta c, without autograd. a [m, k], b [k, n], c [m, n]: of any strides (a transposed matrix is a view: x.t()),
// on one device, c disjoint from a and b. a and b have one dtype of fp32, fp64, bf16, fp16; c has the same or, for 16-bit types,
// fp32. Sums are in fp32 or wider and are rounded to c's dtype: into an fp32 c nothing is rounded to 16 bits on the way. beta =
// 0: c is only written. With meta tensors it only checks the arguments. Any thread. Misuse, before anything
// is written, for arguments that do not fit.
void gemm(GemmKind kind, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta = 0, double alpha = 1);

// A library that multiplies matrices. Thread-safe.
class Gemm {
 public:
  virtual ~Gemm();

  // Whether it multiplies matrices of this dtype on this device: into that dtype and, from 16 bits, into fp32.
  virtual bool takes(at::DeviceType device, at::ScalarType dtype) const = 0;
  // As zt::gemm, with checked arguments: m, n, k > 0, gradients off, a and b lie in rows or in columns (`blas_layout` gives a
  // value), c in rows. Fault when the library reports an error.
  virtual void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const = 0;
};

// How BLAS sees a matrix: rows of contiguous elements, or the transpose of such, `ld` elements apart.
struct BlasLayout {
  bool transposed = false;
  int64_t ld = 1;
};
// Misuse for a tensor that is neither.
BlasLayout blas_layout(const at::Tensor& matrix);

// Adds a provider; it stays for the process. The same name again is a Misuse. Thread-safe, as is what follows.
void register_gemm(const std::string& name, std::shared_ptr<const Gemm> provider);
bool has_gemm(const std::string& name);
// The provider of that name; Misuse with the nearest name.
const Gemm& find_gemm(const std::string& name);
// Names, in the order of their registration; "aten" is the first.
std::vector<std::string> gemm_providers();

}  // namespace zt
