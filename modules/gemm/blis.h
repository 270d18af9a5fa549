// GEMMs of fp32 matrices by the BLIS of the distribution (libblis4-serial). On AMD processors it is about 11 % faster than MKL.
// F. Van Zee, R. van de Geijn: BLIS: a framework for rapidly instantiating BLAS functionality. ACM TOMS 41 (3), 2015.
#pragma once

#include <memory>

#include "zt/gemm/gemm.h"

namespace zt {

// Returns the provider "blis": fp32 on the CPU; null if the library is not installed or multiplies wrongly. With several threads
// of ATen, each computes a slice of the result, with the bits of one thread. The library is opened at the first call, by its own
// API: its BLAS functions have the names of those in LibTorch's MKL. Thread-safe.
std::shared_ptr<const Gemm> make_blis_gemm();

}  // namespace zt
