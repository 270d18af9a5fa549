// The facts about the processor that the choice of GEMM providers depends on.
#pragma once

#include <c10/core/ScalarType.h>

namespace zt {

struct Processor {
  bool is_amd = false;
  bool has_avx512 = false;
  bool has_bf16 = false;  // instructions that multiply bf16
  bool has_fp16 = false;  // instructions that multiply fp16
  bool has_vnni = false;  // instructions that multiply int8, of 512 bits

  // Returns whether the processor has instructions for GEMMs of this 16-bit dtype. Without them, libraries widen the matrices.
  bool multiplies(at::ScalarType dtype) const { return dtype == at::kBFloat16 ? has_bf16 : has_fp16; }
};

// Returns the facts about the processor that this process runs on.
const Processor& find_processor();

}  // namespace zt
