// Tests on a GPU, which skip themselves where there is none.
#pragma once

#include <ATen/Context.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace zt::test {

// Why nothing can be computed on a GPU here; empty if it can. Opens LibTorch's CUDA library, before anybody asks LibTorch for it.
inline const std::string& cuda_problem() {
  static const std::string problem = []() -> std::string {
#ifdef ZT_HAS_CUDA
    if (!dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) return dlerror();
    return at::hasCUDA() ? "" : "LibTorch finds no GPU";
#else
    return "this build has no CUDA code";
#endif
  }();
  return problem;
}

}  // namespace zt::test

// First in a test.
#define ZT_NEEDS_GPU() \
  if (!zt::test::cuda_problem().empty()) GTEST_SKIP() << "no CUDA: " << zt::test::cuda_problem()
