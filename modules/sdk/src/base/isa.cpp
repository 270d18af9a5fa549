#include "zt/base/isa.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/machine.h"

namespace zt {

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas{Isa::plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    isas.push_back(Isa::avx512);
  }
#endif
  return isas;
}

Isa best_isa() {
  static const Isa best = [] {
    const std::vector<Isa> isas = supported_isas();
    const char* wanted = environment("ZT_ISA");
    if (!wanted) return isas.back();
    const auto found = std::ranges::find(isas, std::string_view(wanted), isa_name);
    if (found != isas.end()) return *found;
    misuse("the environment variable ZT_ISA = '{}' names no instruction set that this processor runs{}", wanted,
           suggest(wanted, names_of(isas, isa_name)));
  }();
  return best;
}

}  // namespace zt
