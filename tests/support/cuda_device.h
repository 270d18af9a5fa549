// Helpers of tests on a GPU, which are skipped where there is none.
#pragma once

#include <ATen/Context.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

namespace zt::test {

// Returns why no GPU can be used here, or an empty text. Opens LibTorch's CUDA library; call this before LibTorch uses CUDA.
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

// Skips the test if no GPU can be used. Must be the first statement of a test.
#define ZT_NEEDS_GPU() \
  if (!zt::test::cuda_problem().empty()) GTEST_SKIP() << "no CUDA: " << zt::test::cuda_problem()
