// Schedules as text and as PyTorch's CSV, there and back.
#include "schedule/text.h"

#include <gtest/gtest.h>

#include "schedule/check.h"
#include "schedule/recipes.h"
#include "support/message.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace pipe;

TEST(Text, ComesBackEqual) {
  for (const Recipe& recipe : recipes()) {
    for (const int p : {1, 2, 4}) {
      const PipelineSchedule schedule = make_schedule(recipe.name, {p, recipe.chunks, 5});
      EXPECT_EQ(from_text(to_text(schedule)), schedule) << recipe.name;
      const PipelineSchedule read = from_csv(to_csv(schedule));
      EXPECT_EQ(read.ranks, schedule.ranks) << recipe.name;
      EXPECT_EQ(read.rank_of_stage, schedule.rank_of_stage) << recipe.name;
    }
  }
}

TEST(Text, IsReadable) {
  EXPECT_EQ(to_text(make_schedule("one_f_one_b", {2, 1, 2})),
            "ztoolkit schedule 2\nranks 2 chunks 1 micro_batches 2\nplacement loop\nrank 0: 0F0 0F1 0B0 0B1\n"
            "rank 1: 1F0 1B0 1F1 1B1\n");
}

// The ranks may have different numbers of stages, so the largest one does not bound their sum.
TEST(Text, ReadsBackUnevenPlacements) {
  std::vector<int> rank_of_stage(1100, 0);
  for (int rank = 0; rank < 1000; ++rank) rank_of_stage.push_back(rank);
  const PipelineSchedule schedule = empty_schedule(rank_of_stage, 1000, 1);
  EXPECT_GT(int64_t{schedule.chunks()} * 1000, 1 << 20);
  EXPECT_EQ(from_text(to_text(schedule)), schedule);
}

TEST(Text, RefusesWhatItCannotRead) {
  const std::string whole = to_text(make_schedule("zb_v", {2, 2, 3}));
  for (size_t length = 0; length + 1 < whole.size(); ++length) {
    try {  // a text that is cut short is refused, or found to be incomplete
      EXPECT_FALSE(check(from_text(whole.substr(0, length))).empty()) << length;
    } catch (const Misuse&) {
    }
  }
  const auto message = [](const std::string& text) { return message_of<Misuse>([&] { from_text(text); }); };
  EXPECT_CONTAINS(message("ztoolkit schedule 1\n"), "line 1: this is version 1 of the format, and this ztoolkit reads version 2");
  EXPECT_CONTAINS(message("ranks 2\n"), "a schedule begins with 'ztoolkit schedule 2'");
  EXPECT_CONTAINS(message("ztoolkit schedule 2\nranks 2 chunks 1 micro_batches 2\nplacement loop\nrank 0: 0F0\n"),
                  "the list of rank 1 of 2 is missing: it is cut short");
  EXPECT_CONTAINS(message("ztoolkit schedule 2\nranks 1 chunks 1 micro_batches 1\nplacement loop\nrank 0: 0X0\n"),
                  "line 4: '0X0' is no task");
  EXPECT_CONTAINS(message(whole + "rank 2: 0F0\n"), "there is more than the 2 ranks");
}

// The rows of PyTorch's documentation.
TEST(Csv, ReadsPyTorchsRows) {
  const PipelineSchedule read = from_csv("0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  EXPECT_EQ(read, make_schedule("one_f_one_b", {2, 1, 4}));
  EXPECT_TRUE(check(read).empty());
}

TEST(Csv, ReadsBothLetterings) {
  const PipelineSchedule now = from_csv("0F0,0F1,,0I0,0B1\n");
  EXPECT_EQ(now.ranks[0][2].task.kind, TaskKind::input_grad);
  const PipelineSchedule older = from_csv("0F0,0F1,0B0,0W0,0BW1\n");
  EXPECT_EQ(older.ranks[0][2].task.kind, TaskKind::input_grad);
  EXPECT_EQ(older.ranks[0][4].task.kind, TaskKind::backward);
  EXPECT_TRUE(check(older).empty());
  EXPECT_EQ(from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n").ranks[0][1].beside->kind, TaskKind::backward);
}

// A file of a zero-bubble schedule may have no BW cell. A whole backward has no W, so a W tells what the B of its task is.
TEST(Csv, ReadsOlderLettersWithoutAWholeBackward) {
  const PipelineSchedule zb = from_csv("0F0,0F1,0B0,0W0,0B1,0W1\n1F0,1B0,1W0,1F1,1B1,1W1\n");
  EXPECT_EQ(zb.ranks[0][2].task.kind, TaskKind::input_grad);
  EXPECT_TRUE(check(zb).empty());
  // The W may be far from its B, and in front of a B that is whole in the newer letters.
  EXPECT_EQ(from_csv("0F0,0F1,0B0,0B1,0W0,0W1\n").ranks[0][3].task.kind, TaskKind::input_grad);
  EXPECT_EQ(from_csv("0F0,0F1,0I0,0W0,0B1\n").ranks[0][4].task.kind, TaskKind::backward);
  EXPECT_EQ(from_csv("0F10,0B10,0W1,0I1,0F1\n").ranks[0][1].task.kind, TaskKind::backward);  // of another task
}

// What PyTorch's _dump_csv writes by default, here of 1F1B for two ranks and one micro-batch.
TEST(Csv, LeavesOutCommunication) {
  const PipelineSchedule read = from_csv(
      "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\r\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\r\n");
  EXPECT_EQ(read, make_schedule("one_f_one_b", {2, 1, 1}));
  for (const char* cell : {"UNSHARD", "0UNSHARDED", "0SEND_G0", "0SEND", "0RECV_F0x"})
    EXPECT_CONTAINS(message_of<Misuse>([&] { from_csv(std::string("0F0,0B0,") + cell + "\n"); }), "row 1, cell 3");
}

TEST(Csv, SkipsAByteOrderMark) {
  EXPECT_EQ(from_csv("\xEF\xBB\xBF"
                     "0F0,0B0\n"),
            make_schedule("gpipe", {1, 1, 1}));
  const PipelineSchedule schedule = make_schedule("zb_v", {2, 2, 3});
  EXPECT_EQ(from_text("\xEF\xBB\xBF" + to_text(schedule)), schedule);
}

// PyTorch's LoopedBFS takes whole backwards in descending order. Split, they are a schedule.
TEST(Csv, SaysWhatToDoWithBackwardsInDescendingOrder) {
  const auto mistakes = check(from_csv("0F0,0F1,0B1,0B0\n"));
  ASSERT_EQ(mistakes.size(), 1U);
  EXPECT_EQ(
      mistakes[0].text(),
      "rank 0, step 4 (0B0) it comes after that of micro-batch 1: gradients of a stage are summed in ascending order of "
      "micro-batches, or their bits would depend on the schedule; put the B's in that order, or split them: the I's may come "
      "in any order, then the W's in ascending order");
  EXPECT_TRUE(check(from_csv("0F0,0F1,0I1,0I0,0W0,0W1\n")).empty());
}

TEST(Csv, NamesRowAndCell) {
  EXPECT_CONTAINS(message_of<Misuse>([] { from_csv("0F0,0B0\n1F0,1Q0\n"); }), "row 2, cell 2: '1Q0' is no task");
  EXPECT_CONTAINS(message_of<Misuse>([] { from_csv("0F0,2F0\n"); }), "no row runs stage 1");
  EXPECT_CONTAINS(message_of<Misuse>([] { from_csv(""); }), "the text has no rows");
}

}  // namespace
}  // namespace zt::test
