#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "libraries.h"

namespace zt {

namespace {

// bli_sgemm of BLIS's typed API, versions 0.2 to 1: strides of rows and columns of each matrix, in elements. 0 is no transpose.
using BliSgemm = void(int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, const float* alpha, const float* a,
                      int64_t row_a, int64_t column_a, const float* b, int64_t row_b, int64_t column_b, const float* beta,
                      float* c, int64_t row_c, int64_t column_c);
using SetThreads = void(int64_t threads);

struct Strides {
  int64_t row, column;
};
Strides strides_of(const at::Tensor& matrix) {
  const BlasLayout layout = blas_layout(matrix);
  return layout.transposed ? Strides{1, layout.ld} : Strides{layout.ld, 1};
}

// Returns the function; null if there is no such library. It is never closed.
BliSgemm* open_blis() {
  void* library = dlopen("libblis.so.4", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  // Variants of the library with threads of their own would start them within the threads of ATen.
  if (auto* set_threads = reinterpret_cast<SetThreads*>(dlsym(library, "bli_thread_set_num_threads"))) set_threads(1);
  return reinterpret_cast<BliSgemm*>(dlsym(library, "bli_sgemm"));
}

// Multiplies two small matrices of whole numbers, so that the result is exact. A library with another API fails this.
bool is_right(BliSgemm& sgemm) {
  constexpr int64_t kM = 5, kN = 7, kK = 9;
  std::array<float, kM * kK> a{};
  std::array<float, kK * kN> b{};
  std::array<float, kM * kN> c{};
  for (int64_t i = 0; i < kM * kK; ++i) a[i] = static_cast<float>(i % 11 - 5);
  for (int64_t i = 0; i < kK * kN; ++i) b[i] = static_cast<float>(i % 7 - 3);
  c.fill(4);
  const float alpha = 1, beta = 0.5F;
  sgemm(0, 0, kM, kN, kK, &alpha, a.data(), kK, 1, b.data(), 1, kK, &beta, c.data(), kN, 1);  // b is column-major
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      float sum = 2;
      for (int64_t l = 0; l < kK; ++l) sum += a[i * kK + l] * b[j * kK + l];
      if (c[i * kN + j] != sum) return false;
    }
  }
  return true;
}

class BlisGemm final : public Gemm {
 public:
  explicit BlisGemm(BliSgemm* sgemm) : sgemm_(sgemm) {}

  bool takes(at::DeviceType device, at::ScalarType dtype) const override { return device == at::kCPU && dtype == at::kFloat; }

  void run(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) const override {
    constexpr int64_t kOperations = 1 << 22;  // of a slice at least: 40 us
    const bool by_rows = c.size(0) >= c.size(1);
    const int64_t lines = by_rows ? c.size(0) : c.size(1);
    const int64_t operations_per_line = std::max<int64_t>(1, c.numel() / lines * a.size(1));
    at::parallel_for(0, lines, std::max<int64_t>(1, kOperations / operations_per_line), [&](int64_t begin, int64_t end) {
      const Slice slice{by_rows ? begin : 0, by_rows ? end : c.size(0), by_rows ? 0 : begin, by_rows ? c.size(1) : end};
      multiply(a, b, c, slice, static_cast<float>(beta), static_cast<float>(alpha));
    });
  }

 private:
  struct Slice {
    int64_t row_begin, row_end, column_begin, column_end;  // of the result
  };

  void multiply(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const Slice& slice, float beta,
                float alpha) const {
    const Strides of_a = strides_of(a), of_b = strides_of(b), of_c = strides_of(c);
    sgemm_(0, 0, slice.row_end - slice.row_begin, slice.column_end - slice.column_begin, a.size(1), &alpha,
           a.const_data_ptr<float>() + slice.row_begin * of_a.row, of_a.row, of_a.column,
           b.const_data_ptr<float>() + slice.column_begin * of_b.column, of_b.row, of_b.column, &beta,
           c.mutable_data_ptr<float>() + slice.row_begin * of_c.row + slice.column_begin * of_c.column, of_c.row, of_c.column);
  }

  BliSgemm* sgemm_;
};

}  // namespace

std::shared_ptr<const Gemm> make_blis_gemm() {
  BliSgemm* sgemm = open_blis();
  return sgemm && is_right(*sgemm) ? std::make_shared<BlisGemm>(sgemm) : nullptr;
}

}  // namespace zt
