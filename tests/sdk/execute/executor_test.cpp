// Checks when the executor starts actions and when it waits for their works. The handlers and works only record the calls.
#include "zt/execute/executor.h"

#include <gtest/gtest.h>

#include <utility>

#include "sdk/program/program_models.h"
#include "support/message.h"

namespace zt {
namespace {

using Lines = std::vector<std::string>;

// A work that is done after `wait`.
class FakeWork : public Work::State {
 public:
  FakeWork(Lines& lines, std::string name, bool fails) : lines_(lines), name_(std::move(name)), fails_(fails) {}
  bool done() override { return false; }
  void synchronize() override { wait(); }
  void wait() override {
    lines_.push_back("wait " + name_);
    if (fails_) fault("{} failed", name_);
  }

 private:
  Lines& lines_;
  const std::string name_;
  const bool fails_;
};

// Starts a work for every action except those with now = true. With fails = true, waiting for the work throws.
class FakeHandler : public ActionHandler {
 public:
  explicit FakeHandler(Lines& lines) : lines_(lines) {}
  Work start(const Action& action, StepState&) override {
    const std::string name = kind(action.kind).name + (action.target < 0 ? "" : " " + std::to_string(action.target));
    lines_.push_back("start " + name);
    if (action.flag("now")) return {};
    return Work(std::make_shared<FakeWork>(lines_, name, action.flag("fails")));
  }

 private:
  Lines& lines_;
};

// Registers a kind that reads and writes these resources of its target.
KindId register_fake(const char* name, Index target, std::vector<ResourceId> reads, std::vector<ResourceId> writes) {
  return register_kind({name, target, false, "", [=](const Action& action, const ModelInfo&) {
                          Resources resources;
                          for (const ResourceId each : reads) resources.reads.push_back({each, action.target});
                          for (const ResourceId each : writes) resources.writes.push_back({each, action.target});
                          return resources;
                        }});
}

// Registers a kind that writes slice `part` of `parts` of its target's parameters: "FAKE_SLICE 0 part=1 parts=4".
KindId register_slice() {
  return register_kind({"FAKE_SLICE", Index::unit, false, "", [](const Action& action, const ModelInfo&) {
                          const auto part = static_cast<int32_t>(action.number("part", 0));
                          const auto parts = static_cast<int32_t>(action.number("parts", 1));
                          return Resources{{}, {{resource::param, action.target, -1, part, parts}}};
                        }});
}

KindId register_free() {
  return register_kind({"FAKE_FREE", Index::unit, false, "", [](const Action& action, const ModelInfo&) {
                          return Resources{{}, {}, {{resource::param, action.target}}};
                        }});
}

class ExecutorTest : public ::testing::Test {
 protected:
  // Makes an executor for these actions, such as "FAKE_WRITE 1 fails=true".
  void make(const Lines& actions, const BufferOf& buffer_of = nullptr) {
    const auto handler = std::make_shared<FakeHandler>(lines_);
    Executor::Handlers handlers;
    handlers[register_fake("FAKE_WRITE", Index::unit, {}, {resource::param})] = handler;
    handlers[register_fake("FAKE_READ", Index::unit, {resource::param}, {})] = handler;
    handlers[register_fake("FAKE_GRAD", Index::unit, {resource::grad}, {})] = handler;
    handlers[register_fake("FAKE_GRAD_WRITE", Index::unit, {}, {resource::grad})] = handler;
    handlers[register_slice()] = handler;
    handlers[register_free()] = handler;
    handlers[register_fake("FAKE_NOTHING", Index::none, {}, {})] = handler;
    RankProgram program;
    for (const std::string& action : actions) program.actions.push_back(parse_action(action));
    const auto complete = [this](int unit) { lines_.push_back("complete " + std::to_string(unit)); };
    executor_ = std::make_unique<Executor>(std::move(program), model_, handlers, complete, nullptr, buffer_of);
  }

  // Runs actions [begin, end) and returns what was called.
  Lines run(int begin = 0, int end = -1) {
    executor_->run(state_, begin, end);
    return std::exchange(lines_, {});
  }

  Lines drain() {
    executor_->drain();
    return std::exchange(lines_, {});
  }

  const ModelInfo model_ = test::chain(2);
  StepState state_;
  Lines lines_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(ExecutorTest, StartsInOrderAndWaitsForNothingThatIsDone) {
  make({"FAKE_WRITE 1 now=true", "FAKE_READ 1 now=true", "FAKE_NOTHING now=true", "FAKE_WRITE 0 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_WRITE 1", "start FAKE_READ 1", "start FAKE_NOTHING", "start FAKE_WRITE 0"}));
  EXPECT_EQ(drain(), Lines{});
}

TEST_F(ExecutorTest, WaitsBeforeTheFirstLaterActionThatTouchesAResource) {
  make({"FAKE_WRITE 0", "FAKE_READ 1 now=true", "FAKE_READ 0 now=true", "FAKE_READ 0 now=true"});
  EXPECT_EQ(run(),
            (Lines{"start FAKE_WRITE 0", "start FAKE_READ 1", "wait FAKE_WRITE 0", "start FAKE_READ 0", "start FAKE_READ 0"}));
}

TEST_F(ExecutorTest, KeepsTwoWorksInFlightAndWaitsForEachByItself) {
  make({"FAKE_WRITE 0", "FAKE_WRITE 1", "FAKE_READ 1 now=true", "FAKE_READ 0 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_WRITE 0", "start FAKE_WRITE 1", "wait FAKE_WRITE 1", "start FAKE_READ 1",
                          "wait FAKE_WRITE 0", "start FAKE_READ 0"}));
}

TEST_F(ExecutorTest, ReadersDoNotWaitForEachOtherAndAWriterWaitsForAll) {
  make({"FAKE_READ 0", "FAKE_READ 0", "FAKE_WRITE 1", "FAKE_WRITE 0 now=true", "FAKE_READ 0 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_READ 0", "start FAKE_READ 0", "start FAKE_WRITE 1", "wait FAKE_READ 0", "wait FAKE_READ 0",
                          "start FAKE_WRITE 0", "start FAKE_READ 0"}));
  EXPECT_EQ(drain(), (Lines{"wait FAKE_WRITE 1"}));
}

TEST_F(ExecutorTest, SlicesThatDoNotOverlapDoNotWaitForEachOther) {
  make({"FAKE_SLICE 0 part=0 parts=2", "FAKE_SLICE 0 part=1 parts=2 now=true", "FAKE_SLICE 0 part=2 parts=3 now=true",
        "FAKE_SLICE 0 part=1 parts=3 now=true"});
  EXPECT_EQ(run(),
            (Lines{"start FAKE_SLICE 0", "start FAKE_SLICE 0", "start FAKE_SLICE 0", "wait FAKE_SLICE 0", "start FAKE_SLICE 0"}));
}

TEST_F(ExecutorTest, AWholeResourceWaitsForAllItsSlices) {
  make({"FAKE_SLICE 0 part=0 parts=2", "FAKE_SLICE 0 part=1 parts=2", "FAKE_READ 0 now=true"});
  EXPECT_EQ(run(),
            (Lines{"start FAKE_SLICE 0", "start FAKE_SLICE 0", "wait FAKE_SLICE 0", "wait FAKE_SLICE 0", "start FAKE_READ 0"}));
}

TEST_F(ExecutorTest, SlicesTooFineToTellApartWaitForEachOther) {
  make(
      {"FAKE_SLICE 0 part=0 parts=1000", "FAKE_SLICE 0 part=999 parts=1001 now=true", "FAKE_SLICE 0 part=0 parts=1001 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_SLICE 0", "start FAKE_SLICE 0", "wait FAKE_SLICE 0", "start FAKE_SLICE 0"}));
}

TEST_F(ExecutorTest, FreeingWaitsForReaders) {
  make({"FAKE_READ 0", "FAKE_FREE 0", "FAKE_READ 1 now=true", "FAKE_READ 0 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_READ 0", "wait FAKE_READ 0", "start FAKE_FREE 0", "start FAKE_READ 1", "wait FAKE_FREE 0",
                          "start FAKE_READ 0"}));
}

TEST_F(ExecutorTest, TreatsResourcesInOneBufferAsOne) {
  make({"FAKE_WRITE 0", "FAKE_WRITE 1 now=true"}, [](const Resource& resource) { return Resource{resource.type, 0}; });
  EXPECT_EQ(run(), (Lines{"start FAKE_WRITE 0", "wait FAKE_WRITE 0", "start FAKE_WRITE 1"}));
}

TEST_F(ExecutorTest, WaitsAtOnceForAnActionWithWait) {
  make({"FAKE_WRITE 0 wait=true", "FAKE_NOTHING wait=true", "FAKE_READ 1 now=true"});
  EXPECT_EQ(run(),
            (Lines{"start FAKE_WRITE 0", "wait FAKE_WRITE 0", "start FAKE_NOTHING", "wait FAKE_NOTHING", "start FAKE_READ 1"}));
}

TEST_F(ExecutorTest, AWorkWithResourcesCrossesTheEndOfAStep) {
  make({"FAKE_READ 0 now=true", "FAKE_WRITE 0"});
  EXPECT_EQ(run(), (Lines{"start FAKE_READ 0", "start FAKE_WRITE 0"}));
  EXPECT_EQ(run(), (Lines{"wait FAKE_WRITE 0", "start FAKE_READ 0", "start FAKE_WRITE 0"}));
  EXPECT_EQ(drain(), Lines{"wait FAKE_WRITE 0"});
  EXPECT_EQ(drain(), Lines{});
}

TEST_F(ExecutorTest, AWorkWithoutResourcesIsWaitedForAtTheEndOfTheStep) {
  make({"FAKE_NOTHING", "FAKE_NOTHING", "FAKE_WRITE 0", "FAKE_READ 1 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_NOTHING", "start FAKE_NOTHING", "start FAKE_WRITE 0", "start FAKE_READ 1",
                          "wait FAKE_NOTHING", "wait FAKE_NOTHING"}));
  EXPECT_EQ(drain(), Lines{"wait FAKE_WRITE 0"});
}

TEST_F(ExecutorTest, APartOfAStepDoesNotWaitForWorksWithoutResources) {
  make({"FAKE_NOTHING", "FAKE_READ 0 now=true", "FAKE_READ 1 now=true"});
  EXPECT_EQ(run(0, 2), (Lines{"start FAKE_NOTHING", "start FAKE_READ 0"}));
  EXPECT_EQ(run(2), (Lines{"start FAKE_READ 1", "wait FAKE_NOTHING"}));
  EXPECT_EQ(run(0, 1), Lines{"start FAKE_NOTHING"});
  EXPECT_EQ(drain(), Lines{"wait FAKE_NOTHING"});
}

TEST_F(ExecutorTest, AFailureOfAWorkIsThrownOnceWhereItIsWaitedFor) {
  make({"FAKE_WRITE 0 fails=true", "FAKE_WRITE 1", "FAKE_READ 0 now=true"});
  EXPECT_CONTAINS(test::message_of<Fault>([&] { run(); }), "FAKE_WRITE 0 failed");
  EXPECT_EQ(std::exchange(lines_, {}), (Lines{"start FAKE_WRITE 0", "start FAKE_WRITE 1", "wait FAKE_WRITE 0"}));
  EXPECT_EQ(drain(), Lines{"wait FAKE_WRITE 1"});
}

TEST_F(ExecutorTest, AFailureOfAWorkWithoutResourcesIsThrownAtTheEndOfTheStep) {
  make({"FAKE_NOTHING fails=true", "FAKE_READ 0 now=true"});
  EXPECT_CONTAINS(test::message_of<Fault>([&] { run(); }), "FAKE_NOTHING failed");
  EXPECT_EQ(lines_, (Lines{"start FAKE_NOTHING", "start FAKE_READ 0", "wait FAKE_NOTHING"}));
}

TEST_F(ExecutorTest, CompletesAGradientBeforeItIsReadAfterTheWorksThatWriteIt) {
  make({"FAKE_GRAD_WRITE 1", "FAKE_GRAD 1", "FAKE_GRAD 1 now=true"});
  EXPECT_EQ(run(), (Lines{"start FAKE_GRAD_WRITE 1", "wait FAKE_GRAD_WRITE 1", "complete 1", "start FAKE_GRAD 1", "complete 1",
                          "start FAKE_GRAD 1"}));
}

TEST_F(ExecutorTest, NamesAnActionThatNothingRuns) {
  EXPECT_SAYS("nothing runs the action UNSHARD 0", make({"UNSHARD 0"}));
}

}  // namespace
}  // namespace zt
