#include "rule.h"

namespace zt {

namespace {

bool is_16_bit(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

std::string provider_of(const Processor& processor, const std::set<std::string>& available, const GemmGroup& group) {
  if (group.dtype == at::kDouble || !available.contains("mkl")) return "aten";
  const bool is_emulated = is_16_bit(group.dtype) && !processor.multiplies(group.dtype);
  const bool is_for_skinny = group.few_rows && processor.has_avx512 && (group.dtype == at::kFloat || is_emulated);
  if (is_for_skinny && available.contains("skinny")) return "skinny";
  if (group.dtype == at::kFloat) return processor.is_amd && available.contains("blis") ? "blis" : "aten";
  const bool has_microkernels = group.dtype == at::kBFloat16 && group.widens && processor.is_amd && processor.has_bf16;
  if (has_microkernels && available.contains("brgemm")) return "brgemm";
  return group.widens || group.dtype == at::kHalf || is_emulated ? "mkl" : "aten";
}

}  // namespace

GemmChoice gemm_rule(const Processor& processor, const std::set<std::string>& available) {
  GemmChoice choice;
  for (const GemmGroup& group : all_gemm_groups()) choice[group] = provider_of(processor, available, group);
  return choice;
}

}  // namespace zt
