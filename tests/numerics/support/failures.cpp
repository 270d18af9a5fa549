#include "numerics/support/failures.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "numerics/support/memory_checkpoint.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"

namespace zt::test {

namespace {

constexpr int kNever = -1;
const char* const kPlanted = "a planted failure";

// The place at which each rank fails next, counted over the training program.
struct Fuses {
  explicit Fuses(int ranks) : armed(static_cast<size_t>(ranks)) {
    for (auto& place : armed) place = kNever;
  }
  std::vector<std::atomic<int>> armed;
  std::atomic<int> places = 0;  // of the longest program
};

class FailHandler : public ActionHandler {
 public:
  explicit FailHandler(std::shared_ptr<Fuses> fuses) : fuses_(std::move(fuses)) {}
  Work start(const Action& action, StepState& state) override {
    int place = static_cast<int>(action.number("place", 0));
    if (fuses_->armed[static_cast<size_t>(state.links->place().coord.rank)].compare_exchange_strong(place, kNever))
      misuse("{}", kPlanted);
    return {};
  }

 private:
  std::shared_ptr<Fuses> fuses_;
};

KindId fail_kind() {
  static const KindId id = [] {
    Kind kind{"FAIL_ONCE", Index::none, false, "fails if it is armed",
              [](const Action&, const ModelInfo&) { return Resources{}; }};
    kind.role = Role::residency;  // steps by hand let such actions stand between forwards
    return register_kind(std::move(kind));
  }();
  return id;
}

// Puts an action that may fail before every action of the training program, and one at its end.
class FailurePoints : public Pass {
 public:
  explicit FailurePoints(std::shared_ptr<Fuses> fuses) : fuses_(std::move(fuses)) {}
  std::string name() const override { return "failure_points"; }
  Phase phase() const override { return Phase::overlap; }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override {
    return {{fail_kind(), std::make_shared<FailHandler>(fuses_)}};
  }
  RankProgram apply(RankProgram program, const ModelInfo&, const Coord&) const override {
    if (program.mode != Mode::train) return program;
    std::vector<Action> actions;
    int place = 0;
    const auto add_point = [&] { actions.push_back({.kind = fail_kind(), .attrs = {{"place", place++}}}); };
    for (Action& action : program.actions) {
      if (action.kind != Kinds::get().count) add_point();
      actions.push_back(std::move(action));
    }
    add_point();
    program.actions = std::move(actions);
    int longest = fuses_->places;
    while (longest < place && !fuses_->places.compare_exchange_weak(longest, place)) {
    }
    return program;
  }

 private:
  std::shared_ptr<Fuses> fuses_;
};

// The training of one rank.
class FailingRun {
 public:
  FailingRun(const World& world, const Config& config, std::shared_ptr<Fuses> fuses)
      : world_(world), config_(config), fuses_(std::move(fuses)), trainer_(make_trainer(world, config)) {
    step(0);
    checkpoint_.save(*trainer_);
    expected_ = {step(1), step(2)};
  }

  void fail_at(int place, bool fails) {
    SCOPED_TRACE(fmt::format("place {} of {}, rank {}", place, fuses_->places.load(), world_.rank));
    checkpoint_.load(*trainer_);
    if (fails) fuses_->armed[static_cast<size_t>(world_.rank)] = place;
    std::string first = "no error", again = "no error";
    double loss = 0;
    first = error_of([&] { loss = step(1); });
    fuses_->armed[static_cast<size_t>(world_.rank)] = kNever;
    again = error_of([&] { loss = step(first == "no error" ? 2 : 1); });
    if (again == "no error") {
      const bool is_short = first == "no error";  // this rank's program has no such place
      if (!is_short) {
        EXPECT_CONTAINS(first, kPlanted);
        EXPECT_EQ(loss, expected_[0]);
        loss = step(2);
      }
      EXPECT_EQ(loss, expected_[1]);
      return;
    }
    EXPECT_CONTAINS(again, kPlanted);
    EXPECT_CONTAINS(again, "load a checkpoint");
    checkpoint_.load(*trainer_);
    EXPECT_EQ(step(1), expected_[0]);
    EXPECT_EQ(step(2), expected_[1]);
  }

 private:
  template <class Call>
  static std::string error_of(Call call) {
    return message_of<Error>(call);
  }

  double step(int number) {
    const int data_ranks = config_.ranks / config_.stage_ranks;
    const int64_t part = config_.samples / data_ranks;
    const Batch mine = part_of(global_batch(number, config_.seed, config_.samples), world_.rank % data_ranks * part, part);
    if (!config_.by_hand) return trainer_->step(mine).loss;
    const int64_t piece = part / config_.micro_batches;
    for (int m = 0; m < config_.micro_batches; ++m) {
      trainer_->forward(part_of(mine, m * piece, piece));
      trainer_->backward();
    }
    return trainer_->finish_step().loss;
  }

  World world_;
  const Config& config_;
  std::shared_ptr<Fuses> fuses_;
  std::shared_ptr<Trainer> trainer_;
  MemoryCheckpoint checkpoint_;
  std::vector<double> expected_;
};

}  // namespace

void expect_failures_leave_no_trace(Config config, Failing failing, int stride) {
  const auto fuses = std::make_shared<Fuses>(config.ranks);
  config.last_pass = std::make_shared<FailurePoints>(fuses);
  spawn(config.ranks, [&](const World& world) {
    FailingRun run(world, config, fuses);
    const bool fails = failing == Failing::all || world.rank == config.ranks - 1;
    for (int place = 0; place < fuses->places; place += stride) run.fail_at(place, fails);
  });
}

}  // namespace zt::test
