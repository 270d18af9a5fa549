// Tests the rule that chooses providers, for each kind of processor and for the providers registered here.
#include "rule.h"

#include <gtest/gtest.h>

#include "providers.h"

namespace zt::test {
namespace {

const std::set<std::string> kAll{"aten", "blis", "brgemm", "cublas", "mkl", "skinny"};

// Returns the groups whose provider is not "aten", by name.
std::map<std::string, std::string> others(const Processor& processor, const std::set<std::string>& available = kAll) {
  std::map<std::string, std::string> names;
  const GemmChoice choice = gemm_rule(processor, available);
  EXPECT_EQ(choice.size(), all_gemm_groups().size());
  for (const auto& [group, provider] : choice) {
    if (provider != "aten") names[name_of(group)] = provider;
  }
  return names;
}
using Names = std::map<std::string, std::string>;

TEST(GemmRule, WithoutAvx512MklMultipliesWhatLibTorchEmulates) {
  const Names wanted{{"bfloat16", "mkl"},
                     {"bfloat16_of_few_rows", "mkl"},
                     {"bfloat16_to_float32", "mkl"},
                     {"bfloat16_to_float32_of_few_rows", "mkl"},
                     {"float16", "mkl"},
                     {"float16_of_few_rows", "mkl"},
                     {"float16_to_float32", "mkl"},
                     {"float16_to_float32_of_few_rows", "mkl"}};
  EXPECT_EQ(others({}), wanted);
}

TEST(GemmRule, WithAvx512SkinnyMultipliesFewRows) {
  const Names wanted{{"bfloat16", "mkl"},
                     {"bfloat16_of_few_rows", "skinny"},
                     {"bfloat16_to_float32", "mkl"},
                     {"bfloat16_to_float32_of_few_rows", "skinny"},
                     {"float16", "mkl"},
                     {"float16_of_few_rows", "skinny"},
                     {"float16_to_float32", "mkl"},
                     {"float16_to_float32_of_few_rows", "skinny"},
                     {"float32_of_few_rows", "skinny"}};
  EXPECT_EQ(others({.has_avx512 = true}), wanted);
}

TEST(GemmRule, InstructionsOf16BitTypesAreUsed) {
  const Names wanted{{"bfloat16_to_float32", "mkl"},
                     {"bfloat16_to_float32_of_few_rows", "mkl"},
                     {"float16", "mkl"},
                     {"float16_of_few_rows", "skinny"},
                     {"float16_to_float32", "mkl"},
                     {"float16_to_float32_of_few_rows", "skinny"},
                     {"float32_of_few_rows", "skinny"}};
  EXPECT_EQ(others({.has_avx512 = true, .has_bf16 = true}), wanted);
  Names with_fp16 = wanted;
  with_fp16["float16_of_few_rows"] = with_fp16["float16_to_float32_of_few_rows"] = "mkl";
  EXPECT_EQ(others({.has_avx512 = true, .has_bf16 = true, .has_fp16 = true}), with_fp16);
}

TEST(GemmRule, ProcessorsOfAmdUseBlisAndBrgemm) {
  Names wanted = others({.has_avx512 = true, .has_bf16 = true});
  wanted["float32"] = "blis";
  wanted["bfloat16_to_float32"] = wanted["bfloat16_to_float32_of_few_rows"] = "brgemm";
  EXPECT_EQ(others({.is_amd = true, .has_avx512 = true, .has_bf16 = true}), wanted);
  EXPECT_EQ(others({.is_amd = true}).at("float32_of_few_rows"), "blis");
}

TEST(GemmRule, NamesOnlyWhatIsAvailable) {
  EXPECT_EQ(others({.has_avx512 = true}, {"aten", "skinny"}), Names{});
  EXPECT_EQ(others({.has_avx512 = true}, {"aten", "mkl"}), others({.has_avx512 = false}));
  EXPECT_EQ(others({.is_amd = true}, {"aten", "mkl"}), others({.is_amd = false}));
}

TEST(GemmRule, IsTheDefaultOnceProvidersAreRegistered) {
  register_gemm_providers();
  register_gemm_providers();  // has no effect
  const std::vector<std::string> names = gemm_providers();
  const GemmChoice rule = gemm_rule(find_processor(), {names.begin(), names.end()});
  EXPECT_EQ(default_gemm_choice(), rule);
  EXPECT_EQ(gemm_choice(), rule);
}

}  // namespace
}  // namespace zt::test
