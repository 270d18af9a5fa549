#include "processor.h"

#include "zt/base/isa.h"

namespace zt {

const Processor& find_processor() {
  static const Processor processor = [] {
    Processor found;
    found.has_avx512 = supported_isas().back() == Isa::avx512;
#if defined(__x86_64__)
    found.is_amd = __builtin_cpu_is("amd");
    found.has_bf16 = __builtin_cpu_supports("avx512bf16");
    found.has_fp16 = __builtin_cpu_supports("avx512fp16");
    found.has_vnni = __builtin_cpu_supports("avx512vnni");
#else
    found.has_bf16 = found.has_fp16 = true;
#endif
    return found;
  }();
  return processor;
}

}  // namespace zt
