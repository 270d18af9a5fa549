// Checkpoints of trainers: saved on one layout, loaded on another.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "../numerics/training.h"
#include "ckpt_folder.h"
#include "loader.h"
#include "posix_fs.h"
#include "saver.h"
#include "support/spawn.h"
#include "zt/error.h"
#include "zt/mesh.h"

namespace zt::test {
namespace {

using namespace zt::ckpt;

Config layout(int ranks, int stage, Precision precision = Precision::fp32) {
  Config config;
  config.ranks = ranks;
  config.stage = stage;
  config.precision = precision;
  config.micro_batches = 1;
  return config;
}

std::string name_of(const Config& config) {
  return fmt::format("{} ranks, stage {}", config.ranks, config.stage);
}

// All that a trainer holds, whole, by name: equal on all ranks.
std::map<std::string, at::Tensor> whole_state(Trainer& trainer) {
  std::map<std::string, at::Tensor> all;
  for (const ParamInfo& param : trainer.spec().model()->info().params) {
    all["model/" + param.name] = trainer.master(param.name);
    all["compute/" + param.name] = trainer.parameter(param.name);
    for (const auto& [key, tensor] : trainer.optimizer_state(param.name)) all["optimizer/" + key + "/" + param.name] = tensor;
  }
  return all;
}

Objects objects_of(const std::shared_ptr<Trainer>& trainer) {
  return {{"", Value(Object::of(trainer))}};
}
Ranks ranks_of(const Trainer& trainer) {
  const auto mesh = trainer.spec().mesh();
  return mesh ? Ranks(mesh->world()->communicator) : Ranks();
}

constexpr int kSteps = 3;

struct Saved {
  std::map<std::string, at::Tensor> state;  // when it was saved
  std::vector<double> losses;               // of the steps after
};

Saved train_and_save(const Config& config, const std::string& root, Mode mode) {
  Saved saved;
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    for (int step = 0; step < kSteps; ++step) run.step();
    Saver saver(std::make_shared<PosixFs>(world), ranks_of(run.trainer()));
    SaveOptions options;
    options.mode = mode;
    saver.save(root, kSteps, objects_of(run.shared_trainer()), options);
    const auto state = whole_state(run.trainer());
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) losses.push_back(run.step().loss);
    saver.wait();
    if (world.rank == 0) saved = {state, losses};
  });
  return saved;
}

// The state after the load, and the losses of the steps that follow.
Saved load_and_train(const Config& config, const std::string& root) {
  Saved loaded;
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    PosixFs files(world);
    load(files, ranks_of(run.trainer()), root + "/" + *latest(files, root), objects_of(run.shared_trainer()), {});
    run.skip_to(kSteps);
    const auto state = whole_state(run.trainer());
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) losses.push_back(run.step().loss);
    if (world.rank == 0) loaded = {state, losses};
  });
  return loaded;
}

void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

class Layouts : public testing::TestWithParam<Mode> {};

TEST_P(Layouts, AnySavesForAny) {
  const std::vector<Config> layouts{layout(1, 0), layout(2, 1), layout(3, 3), layout(4, 2)};
  for (const Config& from : layouts) {
    const CkptFolder folder;
    const Saved saved = train_and_save(from, folder.path(), GetParam());
    for (const Config& to : layouts) {
      SCOPED_TRACE(name_of(from) + " -> " + name_of(to));
      const Saved loaded = load_and_train(to, folder.path());
      expect_equal(saved.state, loaded.state);
      if (from.ranks == to.ranks) EXPECT_EQ(saved.losses, loaded.losses);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ckpt, Layouts, testing::Values(Mode::async, Mode::blocking),
                         [](const auto& each) { return each.param == Mode::async ? "async" : "blocking"; });

}  // namespace
}  // namespace zt::test
