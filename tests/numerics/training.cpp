#include "training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "adam.h"
#include "layers.h"
#include "mesh.h"
#include "shard.h"
#include "support/spawn.h"
#include "zt/recompute.h"
#include "zt/rng.h"

namespace zt::test {

Batch global_batch(int step, int seed) {
  const Philox numbers = Philox::keyed(17, Purpose::user, static_cast<uint64_t>(step), static_cast<uint64_t>(seed));
  std::vector<float> uniform(kSamples * kSeq * 2);
  numbers.uniform(0, 0, uniform);
  auto tokens = at::empty({kSamples, kSeq}, at::kLong);
  auto labels = at::empty({kSamples, kSeq}, at::kLong);
  for (int64_t i = 0; i < kSamples * kSeq; ++i) {
    tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(uniform[2 * i] * kVocab);
    // The later a sample, the more of its labels are ignored: micro-batches and ranks have different token counts.
    const bool is_ignored = uniform[2 * i + 1] * kSamples < static_cast<float>(i / kSeq) * 0.7F;
    labels.data_ptr<int64_t>()[i] = is_ignored ? -100 : (tokens.data_ptr<int64_t>()[i] * 7 + 3) % kVocab;
  }
  return {{"tokens", tokens}, {"labels", labels}};
}

std::shared_ptr<Trainer> make_trainer(const World& world, const Config& config, TrainerOptions options) {
  const auto model = nn::make_gpt(Value::Table{{"layers", 3},
                                               {"hidden", 24},
                                               {"heads", 3},
                                               {"vocab", kVocab},
                                               {"seq", kSeq},
                                               {"seed", 5},
                                               {"tied", config.tied},
                                               {"dropout", config.dropout}});
  if (!config.frozen.empty()) model->set_trainable(config.frozen, false);
  auto spec = std::make_shared<ProgramSpec>(model, config.micro_batches, config.precision);
  if (config.stage >= 0) {
    comm::MeshOptions axes;
    axes.axes = {{"dp", -1}};
    if (config.replicas > 1) axes.axes = {{"replica", config.replicas}, {"dp", -1}};
    const auto mesh = comm::make_mesh(world, axes);
    Value::Table shard = config.shard;
    shard["stage"] = config.stage;
    shard["axis"] = Object::of<Axis>(mesh->axis("dp"));
    shard.emplace("node_shared", false);
    if (config.replicas > 1) shard["replicate"] = Object::of<Axis>(mesh->axis("replica"));
    if (!config.reduce_every.empty()) shard["reduce_every"] = config.reduce_every;
    if (config.bucket_bytes >= 0) shard["bucket_bytes"] = config.bucket_bytes;
    if (config.prefetch >= 0) shard["prefetch"] = config.prefetch;
    if (config.persist_below >= 0) shard["persist_below"] = config.persist_below;
    if (config.max_reuse_distance >= 0) shard["max_reuse_distance"] = config.max_reuse_distance;
    spec = spec->apply(zero::make_shard(zero::parse_shard_options(shard)));
  }
  if (config.recompute_every > 0) spec = spec->apply(make_recompute(config.recompute_every));
  options.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-2}, {"weight_decay", 0.1}});
  options.clip = config.clip;
  return Trainer::make(spec, options);
}

namespace {

at::Tensor flatten(Trainer& trainer, bool gradients) {
  std::vector<at::Tensor> parts;
  for (const ParamInfo& param : trainer.state().model->params) {
    if (gradients && !param.trainable) continue;
    const at::Tensor values = gradients ? trainer.gradient(param.name) : trainer.master(param.name);
    parts.push_back(values.reshape({-1}).to(at::kDouble));
  }
  return at::cat(parts);
}

Outcome train_rank(const World& world, const Config& config) {
  const auto trainer = make_trainer(world, config);
  const int64_t part = kSamples / world.size;
  const auto part_of_batch = [&](int step) {
    Batch mine = global_batch(step, config.seed);
    for (auto& [name, field] : mine) field = field.narrow(0, world.rank * part, part);
    return mine;
  };
  Outcome run;
  for (int step = 0; step < config.steps; ++step) {
    const StepResult result = trainer->step(part_of_batch(step));
    run.losses.push_back(result.loss);
    run.norms.push_back(result.grad_norm);
    if (step == 0 && config.stage <= 0 && config.reduce_every != "micro_batch") {
      run.first_gradient = flatten(*trainer, true) / trainer->state().grad_divisor;
    }
  }
  run.evaluated = trainer->evaluate(part_of_batch(config.steps)).loss;
  run.weights = flatten(*trainer, false);
  return run;
}

}  // namespace

Outcome train(const Config& config) {
  std::vector<Outcome> runs(config.ranks);
  spawn(config.ranks, [&](const World& world) { runs[world.rank] = train_rank(world, config); });
  for (const Outcome& other : runs) {
    EXPECT_EQ(other.losses, runs[0].losses);
    EXPECT_EQ(other.norms, runs[0].norms);
    EXPECT_EQ(other.evaluated, runs[0].evaluated);
    EXPECT_TRUE(at::equal(other.weights, runs[0].weights));
  }
  return runs[0];
}

void expect_equal(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.evaluated, b.evaluated);
  EXPECT_TRUE(at::equal(a.weights, b.weights));
}

}  // namespace zt::test
