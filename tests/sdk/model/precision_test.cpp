#include "zt/model/precision.h"

#include <gtest/gtest.h>

#include "support/message.h"
#include "zt/program/rank_program.h"

namespace zt::test {
namespace {

TEST(Precision, ANameSetsAllTypes) {
  for (const auto& [name, expected] : std::vector<std::pair<const char*, Precision>>{
           {"fp32", Precision::fp32}, {"fp64", Precision::fp64}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}}) {
    EXPECT_EQ(parse_precision(name, "p"), expected) << name;
    EXPECT_EQ(expected.text(), name);
  }
  EXPECT_TRUE(Precision::bf16.is_mixed());
  EXPECT_FALSE(Precision::fp64.is_mixed());
  EXPECT_EQ(Precision::fp16.master(), at::kFloat);
}

TEST(Precision, ATableSetsEachType) {
  const Precision classic = parse_precision(Value::Table{{"params", "bf16"}, {"grads", "bf16"}}, "p");
  EXPECT_EQ(classic.grads, at::kBFloat16);
  EXPECT_EQ(classic.reduce, at::kBFloat16);
  const Precision sent = parse_precision(Value::Table{{"params", "fp32"}, {"reduce", "bf16"}}, "p");
  EXPECT_EQ(sent.grads, at::kFloat);
  EXPECT_EQ(sent.text(), "fp32 (gradients fp32, sent as bf16)");
}

TEST(Precision, OthersAreRefused) {
  const auto refusal = [](const Value& value) {
    return message_of<Misuse>([&] { parse_precision(value, "zt.program.precision"); });
  };
  EXPECT_EQ(refusal("bf61"), "zt.program.precision: unknown precision 'bf61': did you mean 'bf16'?");
  EXPECT_NE(refusal(Value::Table{{"params", "fp64"}, {"grads", "fp32"}}).find("fp64 is for all of them or for none"),
            std::string::npos);
  EXPECT_NE(refusal(Value::Table{{"grads", "fp32"}}).find("'params' is missing"), std::string::npos);
}

TEST(Precision, IsInAProgramsTextAndHash) {
  RankProgram program;
  program.precision = parse_precision(Value::Table{{"params", "bf16"}, {"reduce", "fp16"}}, "p");
  EXPECT_EQ(program.text(), "program mode=train micro_batches=1 units=0 params=bf16 reduce=fp16\n");
  EXPECT_EQ(RankProgram::parse(program.text()).precision, program.precision);
  EXPECT_NE(program.hash(), RankProgram().hash());
}

}  // namespace
}  // namespace zt::test
