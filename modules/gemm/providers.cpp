#include "providers.h"

#include "mkl.h"
#include "onednn.h"
#include "rule.h"
#include "skinny.h"

namespace zt {

namespace {

void register_all() {
  auto skinny = make_skinny_gemm();  // made first: if this throws because of a wrong ZT_ISA, nothing is registered
  if (auto mkl = make_mkl_gemm()) register_gemm("mkl", std::move(mkl));
  register_gemm("skinny", std::move(skinny));
  if (auto sgemm = onednn::make_sgemm()) register_gemm("onednn", std::move(sgemm));
  const std::vector<std::string> names = gemm_providers();
  std::set<std::string> available(names.begin(), names.end());
  // Call takes() only where the rule may choose oneDNN, because the first call makes oneDNN generate code.
  if (find_processor().is_amd && has_gemm("onednn") && !find_gemm("onednn").takes(at::kCPU, at::kFloat))
    available.erase("onednn");
  set_default_gemm_choice(gemm_rule(find_processor(), available));
}

}  // namespace

void register_gemm_providers() {
  static const bool once [[maybe_unused]] = (register_all(), true);
}

}  // namespace zt
