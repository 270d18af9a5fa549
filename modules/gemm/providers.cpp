#include "providers.h"

#include "dots.h"
#include "libraries.h"
#include "packed/packed_kernels.h"
#include "processor.h"
#include "rule.h"
#include "skinny.h"

namespace zt {

namespace {

void register_all() {
  auto skinny = make_skinny_gemm();  // made first: if this throws because of a wrong ZT_ISA, nothing is registered
  if (auto blis = make_blis_gemm()) register_gemm("blis", std::move(blis));
  if (auto brgemm = make_brgemm()) register_gemm("brgemm", std::move(brgemm));
  if (auto mkl = make_mkl_gemm()) register_gemm("mkl", std::move(mkl));
  register_gemm("skinny", std::move(skinny));
  register_gemm("dots", make_dots_gemm(best_isa(), find_processor().has_bf16));
  const Processor& processor = find_processor();
  register_packed_kernels(make_packed_kernels(best_isa(), processor.has_vnni, processor.has_bf16));
  const std::vector<std::string> names = gemm_providers();
  set_default_gemm_choice(gemm_rule(find_processor(), {names.begin(), names.end()}));
}

}  // namespace

void register_gemm_providers() {
  static const bool once [[maybe_unused]] = (register_all(), true);
}

}  // namespace zt
