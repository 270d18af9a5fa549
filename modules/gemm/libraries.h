// GEMMs by libraries. Each function returns a provider of the name in its own; null where the library or the processor lacks it.
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

// bf16 and fp16 by the MKL inside LibTorch, with sums in fp32. Null where LibTorch was built without MKL.
std::shared_ptr<const Gemm> make_mkl_gemm();

// fp32 by the BLIS of the distribution (libblis4-serial). On AMD processors it is about 11 % faster than MKL. F. Van Zee,
// R. van de Geijn: BLIS: a framework for rapidly instantiating BLAS functionality. ACM TOMS 41 (3), 2015. Null if the library is
// not installed or multiplies wrongly. With several threads of ATen, each computes a slice of the result, with the bits of one
// thread. The library is opened at the first call, by its own API: its BLAS functions have the names of those in LibTorch's MKL.
// Thread-safe.
std::shared_ptr<const Gemm> make_blis_gemm();

// bf16 by the microkernels of the oneDNN inside LibTorch (at::native::cpublas::brgemm). Sums are in fp32, in blocks of the summed
// dimension that come one after the other. An fp32 result is written, or added to, directly. This is twice as fast as MKL on
// processors that have bf16 instructions but no matrix tiles (AMD's Zen 4 and 5). GEMMs with a bf16 result are left to "aten".
// Null on a processor without bf16 instructions.
std::shared_ptr<const Gemm> make_brgemm();

}  // namespace zt
