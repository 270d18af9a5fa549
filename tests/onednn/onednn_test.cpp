// oneDNN beside LibTorch: its products against fp64, where it comes from, and what it says of errors.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "sgemm.h"
#include "support/gemm_products.h"
#include "support/message.h"
#include "zt/gemm_choice.h"

namespace zt::test {
namespace {

// Skips the test where the library is not installed or cannot be opened in such a program.
#define NEEDS_ONEDNN()            \
  try {                           \
    onednn::register_provider();  \
  } catch (const Error& error) {  \
    GTEST_SKIP() << error.what(); \
  }

TEST(Onednn, Multiplies) {
  NEEDS_ONEDNN();
  check_products("onednn");
}

TEST(Onednn, IsALibraryOfItsOwn) {
  NEEDS_ONEDNN();
  const onednn::Library& library = onednn::library();
  EXPECT_TRUE(std::filesystem::path(library.path).filename().string().starts_with("libdnnl.so"));
  EXPECT_EQ(library.path, onednn::register_provider());
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "dnnl_sgemm"), nullptr);  // nobody else can take it for LibTorch's
}

TEST(Onednn, TakesFp32Only) {
  NEEDS_ONEDNN();
  const GemmChoice choice = fixed_gemm_choice("onednn");
  EXPECT_EQ(choice.by_dtype.at(at::kFloat), "onednn");
  EXPECT_EQ(choice.by_dtype.at(at::kDouble), "aten");
  EXPECT_EQ(choice.by_dtype.at(at::kBFloat16), default_gemm_choice().by_dtype.at(at::kBFloat16));
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
