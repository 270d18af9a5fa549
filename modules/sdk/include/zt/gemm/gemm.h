// GEMMs (matrix multiplications) by one of several libraries, called providers. gemm_choice.h decides which provider runs a GEMM.
//
// The SDK has the providers "aten" (what at::addmm calls: MKL for fp32 and fp64, LibTorch's oneDNN for 16-bit types) and "cublas"
// (tensors on CUDA). The module gemm registers "mkl" and "skinny"; other modules may register more.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zt {

// The purpose of a GEMM in a linear layer, and its operands: forward is x W^T, input_gradient dy W, weight_gradient dy^T x.
enum class GemmKind : uint8_t { forward, input_gradient, weight_gradient };

// c [m, n] from a [m, k] and b [k, n]; `dtype` is that of a and b. alpha and beta are not part of the shape: a weight gradient
// overwrites c in the first micro-batch and adds to it in later ones, and must use the same order of sums in both cases.
struct GemmShape {
  GemmKind kind = GemmKind::forward;
  at::ScalarType dtype = at::kFloat;
  int64_t m = 0, n = 0, k = 0;
  bool widens = false;  // a and b have 16 bits and c is fp32, as in the sums of weight gradients
};

// Computes c = alpha a b + beta c, without autograd. a [m, k], b [k, n] and c [m, n] have any strides (a transposed matrix is a
// view: x.t()) and are on one device; c must not overlap a or b. a and b have the same dtype: fp32, fp64, bf16 or fp16. c has
// this dtype or, for 16-bit types, fp32. Sums are in fp32 or wider and are rounded to c's dtype; if c is fp32, nothing is rounded
// to 16 bits in between. With beta = 0 the old values of c are not read. With meta tensors only the arguments are checked.
// Thread-safe. Throws Misuse, before anything is written, if the arguments do not fit.
void gemm(GemmKind kind, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta = 0, double alpha = 1);

// A provider of GEMMs. Must be thread-safe.
class Gemm {
 public:
  virtual ~Gemm();

  // Returns whether the provider multiplies matrices of this dtype on this device. If so, it must support a result of the same
  // dtype and, for 16-bit types, also of fp32.
  virtual bool takes(at::DeviceType device, at::ScalarType dtype) const = 0;
  // Computes the same as zt::gemm. The caller has checked the arguments: m, n, k > 0, grad mode is off, a and b are row-major or
  // column-major (blas_layout accepts them), and c is row-major. Throws Fault if the library reports an error.
  virtual void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const = 0;
};

// The layout of a matrix for BLAS: row-major, or column-major if `transposed`.
struct BlasLayout {
  bool transposed = false;
  int64_t ld = 1;  // leading dimension: elements from one row (or column) to the next
};
// Returns the layout. Throws Misuse if the tensor is neither row-major nor column-major.
BlasLayout blas_layout(const at::Tensor& matrix);

// Registers a provider for the life of the process. Throws Misuse if the name is registered already. Thread-safe, as are the
// functions below.
void register_gemm(const std::string& name, std::shared_ptr<const Gemm> provider);
bool has_gemm(const std::string& name);
// Returns the provider of that name. Throws Misuse, with the nearest name, if there is none. The reference stays valid.
const Gemm& find_gemm(const std::string& name);
// Returns the names in the order of registration; "aten" is the first.
std::vector<std::string> gemm_providers();

}  // namespace zt
