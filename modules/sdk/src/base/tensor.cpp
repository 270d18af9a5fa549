#include "zt/base/tensor.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "zt/base/error.h"

namespace zt {

namespace {

using NamedDtype = std::pair<std::string, at::ScalarType>;

const std::vector<NamedDtype>& dtype_names() {
  static const std::vector<NamedDtype> names{
      {"float32", at::kFloat},
      {"float64", at::kDouble},
      {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},
      {"int32", at::kInt},
      {"int16", at::kShort},
      {"int8", at::kChar},
      {"uint8", at::kByte},
      {"uint16", at::kUInt16},
      {"uint32", at::kUInt32},
      {"uint64", at::kUInt64},
      {"bool", at::kBool},
      {"complex64", at::kComplexFloat},
      {"complex128", at::kComplexDouble},
      {"float", at::kFloat},
      {"double", at::kDouble},
      {"half", at::kHalf},
      {"int", at::kInt},
      {"long", at::kLong},
      {"float8_e4m3fn", at::kFloat8_e4m3fn},
      {"float8_e5m2", at::kFloat8_e5m2},
  };
  return names;
}

}  // namespace

at::ScalarType parse_dtype(std::string_view name) {
  for (const auto& [known, dtype] : dtype_names()) {
    if (known == name) return dtype;
  }
  misuse("unknown dtype '{}'{}", name, suggest(name, names_of(dtype_names(), &NamedDtype::first)));
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : dtype_names()) {
    if (known == dtype) return name;
  }
  return c10::toString(dtype);
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("{}[{}] on {}", dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "), tensor.device().str());
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; std::abs(value) >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 100 ? 1 : 0, kUnits[unit]);
}

namespace {
std::atomic<at::DeviceType> other_host_device = at::kCPU;
}  // namespace

bool is_for_host(const at::Tensor& tensor) {
  return tensor.is_cpu() || tensor.device().type() == other_host_device.load(std::memory_order_relaxed);
}

void let_host_compute_on(at::DeviceType type) {
  other_host_device = type;
}

at::Tensor large_zeros(at::IntArrayRef shape, const at::TensorOptions& options) {
  at::Tensor x = at::empty(shape, options);
  if (x.is_cpu()) {
    constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
    const auto begin = reinterpret_cast<uintptr_t>(x.data_ptr());
    const uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage, last = (begin + x.nbytes()) / kHugePage * kHugePage;
    // The result is ignored: without huge pages the kernel uses small ones.
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
  return x.zero_();
}

}  // namespace zt
