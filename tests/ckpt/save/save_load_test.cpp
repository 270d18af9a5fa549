// Tests checkpoints of trainers: saved on one layout, loaded on another.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "ckpt/support/ckpt_folder.h"
#include "load/loader.h"
#include "numerics/support/cut_model.h"
#include "numerics/support/hand_stages.h"
#include "pipe/support/pipelines.h"
#include "save/saver.h"
#include "support/exhaustive.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/comm/mesh.h"
#include "zt/io/posix_fs.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;
using namespace zt::io;

Config layout(Precision precision, const char* optimizer) {
  Config config;
  config.precision = precision;
  config.optimizer = optimizer;
  config.micro_batches = 1;
  return config;
}

std::string name_of(const Config& config) {
  return fmt::format("{} ranks, stage {}", config.ranks, config.stage);
}

// Returns a trainer's whole tensors, by name. They are equal on all ranks.
std::map<std::string, at::Tensor> whole_state(Trainer& trainer) {
  std::map<std::string, at::Tensor> all;
  for (const ParamInfo& param : trainer.program().model()->info().params) {
    all["model/" + param.name] = trainer.tensors().master(param.name);
    all["compute/" + param.name] = trainer.tensors().parameter(param.name);
    for (const auto& [key, tensor] : trainer.tensors().optimizer_state(param.name))
      all["optimizer/" + key + "/" + param.name] = tensor;
  }
  return all;
}

Objects objects_of(const std::shared_ptr<Trainer>& trainer) {
  return {{"", Value(Object::of(trainer))}};
}
Ranks ranks_of(const Trainer& trainer) {
  const auto mesh = trainer.program().mesh();
  return mesh ? Ranks(mesh->world()->communicator) : Ranks();
}

constexpr int kSteps = 3, kStepsAfter = 10;

struct Saved {
  std::map<std::string, at::Tensor> state;  // at the save, or after the load
  std::vector<double> losses;               // of the kStepsAfter steps after it
};

Saved train_and_save(const Config& config, const std::string& root, SaveMode mode) {
  Saved saved;
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    for (int step = 0; step < kSteps; ++step) run.step();
    Saver saver(std::make_shared<io::PosixFs>(world), ranks_of(run.trainer()));
    SaveOptions options;
    options.mode = mode;
    saver.save(root, kSteps, objects_of(run.shared_trainer()), options);
    const auto state = whole_state(run.trainer());
    std::vector<double> losses;
    for (int step = 0; step < kStepsAfter; ++step) losses.push_back(run.step().loss);
    saver.wait();
    if (world.rank == 0) saved = {state, losses};
  });
  return saved;
}

// Returns the state after the load, and the losses of the steps that follow.
Saved load_and_train(const Config& config, const std::string& root) {
  Saved loaded;
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    io::PosixFs files(world);
    load(files, ranks_of(run.trainer()), root + "/" + *latest(files, root), objects_of(run.shared_trainer()), {});
    run.skip_to(kSteps);
    const auto state = whole_state(run.trainer());
    std::vector<double> losses;
    for (int step = 0; step < kStepsAfter; ++step) losses.push_back(run.step().loss);
    if (world.rank == 0) loaded = {state, losses};
  });
  return loaded;
}

void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return largest;
}

std::vector<Config> layouts_of(const Config& base) {
  std::vector<std::pair<int, int>> each{{1, 0}, {2, 1}, {3, 3}, {4, 2}};
  if (is_exhaustive()) {
    each.clear();
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (int stage = 0; stage <= 3; ++stage) each.emplace_back(ranks, stage);
    }
  }
  std::vector<Config> layouts;
  for (const auto& [ranks, stage] : each) {
    layouts.push_back(base);
    layouts.back().ranks = ranks;
    layouts.back().stage = stage;
  }
  return layouts;
}

struct LayoutCase {
  const char* name;
  Precision precision;
  const char* optimizer;
  SaveMode mode;
};

void PrintTo(const LayoutCase& kind, std::ostream* out) {
  *out << kind.name;
}

// Saves and loads all pairs of layouts, and expects equal tensors. Then runs ten steps: on as many ranks as the run that saved,
// the losses must be equal bit for bit; on other numbers of ranks, in fp64, they must be within the bound of rounding, 1e-12.
// Exhaustive: stages 0 to 3 on 1 to 4 ranks.
class Layouts : public testing::TestWithParam<LayoutCase> {};

TEST_P(Layouts, AnySavesForAny) {
  const LayoutCase& kind = GetParam();
  Config base = layout(kind.precision, kind.optimizer);
  double largest = 0;
  int pairs = 0;
  for (const Config& from : layouts_of(base)) {
    const CkptFolder folder;
    const Saved saved = train_and_save(from, folder.path(), kind.mode);
    for (const Config& to : layouts_of(base)) {
      SCOPED_TRACE(name_of(from) + " -> " + name_of(to));
      const Saved loaded = load_and_train(to, folder.path());
      expect_equal(saved.state, loaded.state);
      const double difference = largest_difference(loaded.losses, saved.losses);
      if (from.ranks == to.ranks) {
        EXPECT_EQ(saved.losses, loaded.losses);
      } else if (kind.precision == Precision::fp64) {
        EXPECT_LT(difference, 1e-12);
      }
      largest = std::max(largest, difference);
      ++pairs;
    }
  }
  fmt::print(
      "{}: {} pairs of layouts, all tensors equal; losses of {} steps on other numbers of ranks differ by {:.1e} at most\n",
      kind.name, pairs, kStepsAfter, largest);
}

INSTANTIATE_TEST_SUITE_P(Ckpt, Layouts,
                         testing::Values(LayoutCase{"fp32_adamw", Precision::fp32, "adamw", SaveMode::async},
                                         LayoutCase{"bf16_adamw", Precision::bf16, "adamw", SaveMode::async},
                                         LayoutCase{"fp64_adamw", Precision::fp64, "adamw", SaveMode::blocking},
                                         LayoutCase{"fp32_momentum", Precision::fp32, "momentum", SaveMode::blocking},
                                         LayoutCase{"bf16_momentum", Precision::bf16, "momentum", SaveMode::async},
                                         LayoutCase{"fp32_lion", Precision::fp32, "lion", SaveMode::async},
                                         LayoutCase{"bf16_lion", Precision::bf16, "lion", SaveMode::blocking}),
                         [](const auto& each) { return std::string(each.param.name); });

// Saves on `from` and loads on `to`, and the other way round. Expects equal tensors.
void expect_both_ways(const Config& from, const Config& to) {
  for (const auto& [saves, loads] : {std::pair(from, to), std::pair(to, from)}) {
    SCOPED_TRACE(name_of(saves) + " -> " + name_of(loads));
    const CkptFolder folder;
    const Saved saved = train_and_save(saves, folder.path(), SaveMode::async);
    const Saved loaded = load_and_train(loads, folder.path());
    expect_equal(saved.state, loaded.state);
  }
}

TEST(Ckpt, RanksThatRunSomePositionsAndRanksThatRunAll) {
  Config whole = layout(Precision::bf16, "adamw");
  whole.stage = 0;
  for (const int stage : {1, 3}) {
    Config staged = whole;
    split_by_hand(staged, {0, 2, 5});
    staged.ranks = 4;
    staged.stage = stage;
    expect_both_ways(staged, whole);
  }
}

TEST(Ckpt, PipelinesOfOtherNumbersOfStages) {
  Config whole = layout(Precision::fp32, "adamw");
  whole.micro_batches = 2;
  whole.stage = 0;
  Config data_parallel = whole;
  data_parallel.ranks = 2;
  data_parallel.stage = 3;
  const Config two_by_two = through({.ranks = 2, .name = "zb_v"}, data_parallel);
  expect_both_ways(two_by_two, whole);
  expect_both_ways(two_by_two, through({.ranks = 4, .name = "one_f_one_b"}, whole));
}

TEST(Ckpt, BoxesAndWholeTensors) {
  Config whole = layout(Precision::fp32, "adamw");
  whole.stage = 0;
  whole.model = [] { return make_cut_model(1); };
  for (const auto& [parts, stage] : std::vector<std::pair<int, int>>{{2, 0}, {3, 2}}) {
    Config cut = whole;
    cut.tensor_ranks = parts;
    cut.ranks = 2 * parts;
    cut.stage = stage;
    cut.model = [parts = parts] { return make_cut_model(parts); };
    expect_both_ways(cut, whole);
  }
  Config three = whole, four = whole;
  three.ranks = three.tensor_ranks = 3;
  three.model = [] { return make_cut_model(3); };
  four.ranks = four.tensor_ranks = 4;
  four.model = [] { return make_cut_model(4); };
  expect_both_ways(three, four);
}

// Saves in one precision and loads in another: the master parameters are equal, and compute parameters are their rounding.
TEST(Ckpt, OtherPrecision) {
  const CkptFolder folder;
  Config from = layout(Precision::fp32, "adamw"), to = layout(Precision::bf16, "adamw");
  from.ranks = 2;
  from.stage = 2;
  to.ranks = 3;
  to.stage = 3;
  const Saved saved = train_and_save(from, folder.path(), SaveMode::async), loaded = load_and_train(to, folder.path());
  for (const auto& [name, tensor] : saved.state) {
    const at::Tensor& other = loaded.state.at(name);
    EXPECT_TRUE(other.equal(name.starts_with("compute/") ? tensor.to(at::kBFloat16) : tensor)) << name;
  }
}

TEST(Ckpt, TiedFrozenAndSharedByMoreRanksThanElements) {
  const CkptFolder folder;
  Config from = layout(Precision::fp32, "adamw");
  from.frozen = "norm1";
  from.ranks = 4;
  from.stage = 3;
  Config to = from;
  to.ranks = 2;
  to.stage = 1;
  const Saved saved = train_and_save(from, folder.path(), SaveMode::async), loaded = load_and_train(to, folder.path());
  expect_equal(saved.state, loaded.state);
}

}  // namespace
}  // namespace zt::test
