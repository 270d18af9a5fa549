// Buffers of passes: their text, and the verifier's errors about them.
#include <gtest/gtest.h>

#include "sdk/program/program_models.h"
#include "verify_support.h"
#include "zt/base/error.h"
#include "zt/execute/pass_tensors.h"

namespace zt::test {
namespace {

RankProgram with_buffers(std::vector<PassBuffer> buffers, const Lines& lines = stage_1_lines()) {
  RankProgram program = from_lines(lines);
  program.buffers = std::move(buffers);
  return program;
}

std::string refused(const RankProgram& program, int ranks = 1) {
  return text_of(verify_all(chain(1), dp(ranks), std::vector<RankProgram>(static_cast<size_t>(ranks), program)));
}

const ResourceId kOfUnit = register_pass_buffer("verify_of_unit", Index::unit);
const ResourceId kOfPosition = register_pass_buffer("verify_of_position", Index::position);
const ResourceId kOfRun = register_pass_buffer("verify_of_run", Index::none);

TEST(PassBuffers, AreInTheText) {
  const RankProgram program = with_buffers({{kOfUnit, 1, BufferResidence::own, at::kDouble, true, {128, 3}},
                                            {kOfUnit, 0, BufferResidence::sharded},
                                            {kOfRun, 0, BufferResidence::local, at::kFloat, false}});
  const std::string text = program.text();
  EXPECT_NE(text.find("buffer verify_of_unit 1 shape=[128,3] dtype=float64 residence=own\n"), std::string::npos) << text;
  const RankProgram read = RankProgram::parse(text);
  EXPECT_EQ(read.buffers, program.buffers);
  EXPECT_EQ(read.text(), text);
  EXPECT_NE(read.hash(), with_buffers({}).hash());
  const std::string head = "program units=3\n";
  EXPECT_THROW(RankProgram::parse(head + "buffer verify_of_unit"), Misuse);
  EXPECT_THROW(RankProgram::parse(head + "buffer of_none 0 shape=[1]"), Misuse);
  EXPECT_THROW(RankProgram::parse(head + "buffer verify_of_unit 0 shape=[-1]"), Misuse);
  EXPECT_THROW(RankProgram::parse(head + "buffer verify_of_unit 0 shape=[1] residence=wide"), Misuse);
  EXPECT_THROW(RankProgram::parse(head + "buffer verify_of_unit 0 sizes=[1]"), Misuse);
}

TEST(PassBuffers, RightOnesAreAccepted) {
  Lines lines = stage_1_lines();
  lines[5] += " buffers=[\"verify_of_unit\",\"verify_of_run\"]";
  lines[1] += " buffers=[\"verify_of_position\"]";
  const std::vector<PassBuffer> buffers{
      {kOfUnit, 2, BufferResidence::sharded}, {kOfRun, 0}, {kOfPosition, 0, BufferResidence::own, at::kFloat, true, {4}}};
  EXPECT_EQ(refused(with_buffers(buffers, lines), 2), "");
}

TEST(PassBuffers, WrongOnesAreNamed) {
  const auto expect = [](const RankProgram& program, const std::string& reason) {
    const std::string text = refused(program);
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  };
  expect(with_buffers({{kOfUnit, 3}}), "is of unit 3, which the model does not have");
  expect(with_buffers({{kOfUnit, 1}, {kOfUnit, 1}}), "is declared twice");
  expect(with_buffers({{kOfPosition, 1, BufferResidence::sharded}}), "only units are cut over ranks");
  Lines lines = stage_1_lines();
  lines[5] += " buffers=[\"verify_of_unit\"]";
  expect(with_buffers({{kOfUnit, 1}}, lines), "of unit 'head', of which this rank has none");
  lines[5] = "REDUCE_GRAD 2 axes=[\"dp\"] buffers=[\"verify_of_position\"]";
  expect(with_buffers({}, lines), "its target is a unit, and the buffer 'verify_of_position' is of another: a position");
  lines[5] = "REDUCE_GRAD 2 axes=[\"dp\"] buffers=[\"master\"]";
  expect(with_buffers({}, lines), "'master' in its buffers is no buffer of a pass");
  lines[5] = "REDUCE_GRAD 2 axes=[\"dp\"] buffers=[\"verify_of_units\"]";
  expect(with_buffers({}, lines), "did you mean 'verify_of_unit'?");
}

TEST(PassBuffers, AreAlikeOnAllRanks) {
  std::vector<RankProgram> programs(2, with_buffers({{kOfRun, 0, BufferResidence::own, at::kFloat, true, {2}}}));
  programs[1].buffers[0].shape = {3};
  const std::string text = text_of(verify_all(chain(1), dp(2), programs));
  EXPECT_NE(text.find("the buffer 'verify_of_run' of the run has another shape, type or residence than on rank 0"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace zt::test
