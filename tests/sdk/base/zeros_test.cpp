#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "zt/base/tensor.h"

namespace zt {
namespace {

// Only the whole huge pages inside a tensor are advised: sizes with none, one and several of them.
TEST(LargeZeros, AreZeroEverywhere) {
  for (const int64_t numel : {0, 1, 3, (1 << 18) - 1, 1 << 19, (1 << 20) + 5, 3 << 20}) {
    for (int again = 0; again < 2; ++again) {  // the second tensor may get memory that was used before
      const at::Tensor x = large_zeros({numel}, at::kFloat);
      ASSERT_EQ(x.sizes(), at::IntArrayRef{numel});
      ASSERT_EQ(x.count_nonzero().item<int64_t>(), 0) << numel;
      at::Tensor(x).fill_(1);
    }
  }
}

// Returns the kernel's flags of the mapping that contains `address`: VmFlags in smaps, see proc(5).
std::string flags_of_mapping(uintptr_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (std::istringstream range(line); range >> std::hex >> begin >> dash >> end && dash == '-') {
      is_inside = begin <= address && address < end;
    } else if (is_inside && line.starts_with("VmFlags:")) {
      return line;
    }
  }
  return "";
}

TEST(LargeZeros, AskForHugePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "this kernel has no huge pages";
  const at::Tensor x = large_zeros({3 << 20}, at::kFloat);
  const std::string flags = flags_of_mapping(reinterpret_cast<uintptr_t>(x.data_ptr()) + x.nbytes() / 2);
  EXPECT_NE(flags.find(" hg"), std::string::npos) << flags;
}

TEST(LargeZeros, HaveTheDtypeAndTheDevice) {
  EXPECT_EQ(large_zeros({2, 3}, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_TRUE(large_zeros({int64_t{1} << 40}, at::TensorOptions().device(at::kMeta)).is_meta());
}

}  // namespace
}  // namespace zt
