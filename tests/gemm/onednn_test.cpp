// Tests oneDNN beside LibTorch: its results against fp64, the library that it comes from, and its errors.
#include "onednn.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "providers.h"
#include "support/gemm_products.h"
#include "support/message.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::test {
namespace {

// Skips the test where the library is not installed or cannot be opened in this program.
#define NEEDS_ONEDNN()                                            \
  register_gemm_providers();                                      \
  if (!onednn::library().sgemm) {                                 \
    EXPECT_FALSE(has_gemm("onednn"));                             \
    EXPECT_FALSE(onednn::library().problem.empty());              \
    GTEST_SKIP() << "not offered: " << onednn::library().problem; \
  }

TEST(Onednn, Multiplies) {
  NEEDS_ONEDNN();
  check_products("onednn");
}

TEST(Onednn, IsASeparateLibrary) {
  NEEDS_ONEDNN();
  EXPECT_TRUE(std::filesystem::path(onednn::library().path).filename().string().starts_with("libdnnl.so"));
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "dnnl_sgemm"), nullptr);  // the library is local, so LibTorch's oneDNN cannot call it
}

TEST(Onednn, TakesFp32Only) {
  NEEDS_ONEDNN();
  const GemmChoice choice = fixed_gemm_choice("onednn");
  EXPECT_EQ(choice.at({at::kFloat}), "onednn");
  EXPECT_EQ(choice.at({at::kFloat, false, true}), "onednn");
  EXPECT_EQ(choice.at({at::kDouble}), "aten");
  EXPECT_EQ(choice.at({at::kBFloat16}), default_gemm_choice().at({at::kBFloat16}));
}

int refuse(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float, float*, int64_t) {
  return 3;
}

TEST(Onednn, AnErrorCodeIsAFault) {
  const onednn::Sgemm sgemm(&refuse);
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 4}), c = at::zeros({2, 4});
  EXPECT_CONTAINS(message_of<Fault>([&] { sgemm.run(a, b, c, 0, 1); }), "dnnl_sgemm returned 3");
}

}  // namespace
}  // namespace zt::test
