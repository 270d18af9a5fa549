#include "gemm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/flop_watch.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {

Gemm::~Gemm() = default;

namespace {

// Providers are never removed, so references to them stay valid.
class GemmRegistry {
 public:
  GemmRegistry() {
    add("aten", make_aten_gemm());
    add("cublas", make_cublas_gemm());
  }
  void add(const std::string& name, std::shared_ptr<const Gemm> provider) {
    const std::lock_guard lock(mutex_);
    if (find_locked(name)) misuse("the gemm provider '{}' is registered already: choose another name", name);
    entries_.push_back({name, std::move(provider)});
  }
  const Gemm* find(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return find_locked(name);
  }
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    return names;
  }

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const Gemm> provider;
  };
  const Gemm* find_locked(const std::string& name) const {
    const auto found = std::ranges::find(entries_, name, &Entry::name);
    return found == entries_.end() ? nullptr : found->provider.get();
  }

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

GemmRegistry& gemm_registry() {
  static GemmRegistry registry;
  return registry;
}

bool is_floating(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf;
}

void check(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
  const bool shapes_fit =
      a.dim() == 2 && b.dim() == 2 && c.dim() == 2 && a.size(1) == b.size(0) && c.size(0) == a.size(0) && c.size(1) == b.size(1);
  const at::ScalarType in = a.scalar_type(), out = c.scalar_type();
  const bool is_widened = out == at::kFloat && (in == at::kBFloat16 || in == at::kHalf);
  const bool dtypes_fit = is_floating(in) && b.scalar_type() == in && (out == in || is_widened);
  if (shapes_fit && dtypes_fit && a.device() == b.device() && a.device() == c.device()) return;
  misuse(
      "cannot multiply {} by {} into {}: give matrices [m, k], [k, n] and [m, n] on one device, of one dtype (the result of "
      "16-bit types may be float32)",
      describe(a), describe(b), describe(c));
}

// Returns the distance between rows in elements, or 0 if the elements of a row are not contiguous or if rows overlap.
int64_t row_distance(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const int64_t least = std::max<int64_t>(1, columns);
  if (columns > 1 && column_stride != 1) return 0;
  if (rows <= 1) return least;
  return row_stride >= least ? row_stride : 0;
}
int64_t row_distance(const at::Tensor& x) {
  return row_distance(x.size(0), x.size(1), x.stride(0), x.stride(1));
}
int64_t column_distance(const at::Tensor& x) {
  return row_distance(x.size(1), x.size(0), x.stride(1), x.stride(0));
}
at::Tensor in_blas_layout(const at::Tensor& x) {
  return row_distance(x) || column_distance(x) ? x : x.contiguous();
}

GemmShape shape_of(GemmKind kind, const at::Tensor& a, const at::Tensor& c) {
  return {kind, a.scalar_type(), c.size(0), c.size(1), a.size(1), a.scalar_type() != c.scalar_type()};
}

const Gemm& provider_for(GemmKind kind, const at::Tensor& a, const at::Tensor& c) {
  if (is_for_host(a)) {
    const Gemm* of_scope = GemmScope::current();
    return of_scope && of_scope->takes(at::kCPU, a.scalar_type()) ? *of_scope : chosen_gemm(shape_of(kind, a, c));
  }
  static const Gemm& cublas = find_gemm("cublas");
  if (!cublas.takes(a.device().type(), a.scalar_type())) misuse("no gemm provider multiplies {}", describe(a));
  return cublas;
}

}  // namespace

BlasLayout blas_layout(const at::Tensor& matrix) {
  if (const int64_t ld = row_distance(matrix)) return {false, ld};
  if (const int64_t ld = column_distance(matrix)) return {true, ld};
  misuse("{} is neither row-major nor column-major", describe(matrix));
}

void gemm(GemmKind kind, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, double beta, double alpha) {
  check(a, b, c);
  if (c.is_meta()) return count_flops(2 * static_cast<double>(c.numel()) * static_cast<double>(a.size(1)));
  if (c.numel() == 0) return;
  const at::NoGradGuard no_grad;
  if (a.size(1) == 0) {
    if (beta == 0) c.zero_();
    else c.mul_(beta);
    return;
  }
  const Gemm& provider = provider_for(kind, a, c);
  const at::Tensor left = in_blas_layout(a), right = in_blas_layout(b);
  if (row_distance(c)) return provider.run(left, right, c, beta, alpha);
  if (column_distance(c)) return provider.run(right.t(), left.t(), c.t(), beta, alpha);
  const at::Tensor dense = c.contiguous();
  provider.run(left, right, dense, beta, alpha);
  c.copy_(dense);
}

void register_gemm(const std::string& name, std::shared_ptr<const Gemm> provider) {
  gemm_registry().add(name, std::move(provider));
}

bool has_gemm(const std::string& name) {
  return gemm_registry().find(name);
}

const Gemm& find_gemm(const std::string& name) {
  const Gemm* found = gemm_registry().find(name);
  if (!found) misuse("there is no gemm provider '{}'{}", name, suggest(name, gemm_registry().names()));
  return *found;
}

std::vector<std::string> gemm_providers() {
  return gemm_registry().names();
}

}  // namespace zt
