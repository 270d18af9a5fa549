// GEMMs of bf16 matrices with an fp32 result, by the microkernels of the oneDNN inside LibTorch (at::native::cpublas::brgemm).
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

// Returns the provider "brgemm": bf16 on the CPU. Sums are in fp32, in blocks of the summed dimension that come one after the
// other. An fp32 result is written, or added to, directly. This is twice as fast as MKL on processors that have bf16 instructions
// but no matrix tiles (AMD's Zen 4 and 5). GEMMs with a bf16 result are left to "aten". Returns null on a processor without bf16
// instructions.
std::shared_ptr<const Gemm> make_brgemm();

}  // namespace zt
