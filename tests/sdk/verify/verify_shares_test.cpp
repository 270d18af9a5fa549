// The verifier on programs whose ranks share memory, use different types or form groups.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "verify_support.h"

namespace zt::test {
namespace {

// Two groups see different data, and nothing sums over the groups: this would train two models.
TEST(Verify, RequiresASumOverEveryAxisOfOtherData) {
  const MeshShape mesh({{"replica", 2}, {"dp", 2}}, 4);
  const std::vector<RankProgram> programs(4, from_lines(stage_1_lines()));
  expect_refusal(verify_all(chain(1), mesh, programs), 10,
                 "unit 0 ('embed') was not summed over 'replica', along which ranks see other data");
}

TEST(Verify, RanksAgreeOnPrecisionAndMaxLive) {
  std::vector<RankProgram> programs(2, from_lines(stage_1_lines()));
  programs[1].precision = Precision::bf16;
  EXPECT_NE(text_of(verify_all(chain(1), dp(2), programs)).find("its precision is not that of rank 0"), std::string::npos);
  programs[1] = programs[0];
  programs[1].max_live = 7;
  EXPECT_NE(text_of(verify_all(chain(1), dp(2), programs)).find("its max_live is not that of rank 0"), std::string::npos);
}

TEST(Verify, GradientsAreSentInTheProgramsType) {
  RankProgram program = from_lines(stage_1_lines());
  program.actions[5].attrs["dtype"] = "bf16";
  expect_refusal(verify_all(chain(1), dp(2), {program, program}), 5, "this program sends gradients as it sums them, in fp32");
  program.precision.reduce = at::kBFloat16;
  expect_refusal(verify_all(chain(1), dp(2), {program, program}), 7, "this program sends gradients in bf16: give dtype=\"bf16\"");
}

TEST(Verify, NodeSharedParametersAreNotUsedWhileOtherRanksUpdate) {
  const Kind reads{"READ_PARAM", Index::unit, false, "reads parameters", [](const Action& action, const ModelInfo&) {
                     return Resources{{{resource::param, action.target}}, {}};
                   }};
  const Kind writes{"WRITE_MASTER", Index::unit, false, "writes parameters", [](const Action& action, const ModelInfo&) {
                      return Resources{{}, {{resource::master, action.target}, {resource::param, action.target}}};
                    }};
  register_kind(reads);
  register_kind(writes);
  const auto with = [](int at, const char* line) {
    Lines lines = stage_1_lines();
    lines.insert(lines.begin() + at, line);
    RankProgram program = from_lines(lines);
    for (UnitPlan& unit : program.units) unit.params = Residence::node_shared;
    return verify_all(chain(1), dp(2), {program, program});
  };
  EXPECT_EQ(text_of(with(10, "READ_PARAM 1")), "") << "before NORM";
  EXPECT_EQ(text_of(with(15, "READ_PARAM 1")), "") << "after UNSHARD 1";
  expect_refusal(with(11, "READ_PARAM 1"), 11, "which ranks share and others may be updating since action 10 (NORM");
  expect_refusal(with(10, "WRITE_MASTER 1"), 10, "which other ranks read in the same memory: give node_shared = false");
}

}  // namespace
}  // namespace zt::test
