#include "numerics/support/training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "flat/adam.h"
#include "flat/lion.h"
#include "flat/sgd.h"
#include "layers/layers.h"
#include "mesh/mesh.h"
#include "providers.h"
#include "shard.h"
#include "support/spawn.h"
#include "tensor/muon.h"
#include "zt/program/recompute.h"
#include "zt/program/split_backward.h"
#include "zt/random/rng.h"

namespace zt::test {

Batch global_batch(int step, int seed, int64_t samples) {
  const Philox numbers = Philox::keyed(17, Purpose::user, static_cast<uint64_t>(step), static_cast<uint64_t>(seed));
  std::vector<float> uniform(samples * kSeq * 2);
  numbers.uniform(0, 0, uniform);
  auto tokens = at::empty({samples, kSeq}, at::kLong);
  auto labels = at::empty({samples, kSeq}, at::kLong);
  for (int64_t i = 0; i < samples * kSeq; ++i) {
    tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(uniform[2 * i] * kVocab);
    // Later samples have more ignored labels, so micro-batches and ranks have different numbers of tokens.
    const bool is_ignored = uniform[2 * i + 1] * static_cast<float>(samples) < static_cast<float>(i / kSeq) * 0.7F;
    labels.data_ptr<int64_t>()[i] = is_ignored ? -100 : (tokens.data_ptr<int64_t>()[i] * 7 + 3) % kVocab;
  }
  return {{"tokens", tokens}, {"labels", labels}};
}

Batch part_of(const Batch& batch, int64_t begin, int64_t count) {
  Batch part;
  for (const auto& [name, field] : batch) part[name] = field.narrow(0, begin, count);
  return part;
}

namespace {

std::shared_ptr<Model> make_gpt(const Config& config) {
  return nn::make_gpt(Value::Table{{"layers", 3},
                                   {"hidden", 24},
                                   {"heads", 3},
                                   {"vocab", kVocab},
                                   {"seq", kSeq},
                                   {"seed", 5},
                                   {"tied", config.tied},
                                   {"dropout", config.dropout}});
}

std::shared_ptr<Optimizer> make_optimizer(const Config& config) {
  if (config.is_plain) return optim::make_sgd(Value::Table{{"lr", 1e-2}});
  if (config.optimizer == "momentum") return optim::make_sgd(Value::Table{{"lr", 1e-2}, {"momentum", 0.9}});
  if (config.optimizer == "muon") return optim::make_muon(Value::Table{{"lr", 1e-2}});
  if (config.optimizer == "lion") return optim::make_lion(Value::Table{{"lr", 1e-3}});
  return optim::make_adamw(Value::Table{{"lr", 1e-2}, {"weight_decay", 0.1}});
}

}  // namespace

std::vector<Batch> cut_at(const Batch& batch, const std::vector<int64_t>& counts) {
  std::vector<Batch> parts;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back(part_of(batch, begin, count));
    begin += count;
  }
  return parts;
}

Batch shortened(Batch batch, int64_t tokens) {
  for (auto& [name, field] : batch) field = field.narrow(1, 0, tokens).contiguous();
  return batch;
}

std::shared_ptr<Trainer> make_trainer(const World& world, const Config& config, TrainerOptions options) {
  register_gemm_providers();  // the same providers as in real runs
  const auto model = config.model ? config.model() : make_gpt(config);
  if (!config.frozen.empty()) model->set_trainable(config.frozen, false);
  auto program = std::make_shared<Program>(model, config.micro_batches, config.precision, config.eval_micro_batches);
  if (config.stage >= 0) {
    comm::MeshOptions axes;
    axes.axes = {{"dp", -1}};
    if (config.replicas > 1) axes.axes = {{"replica", config.replicas}, {"dp", -1}};
    if (config.split) axes.axes = {{"pp", config.stage_ranks}, {"dp", -1}};
    if (config.tensor_ranks > 1) axes.axes.push_back({"tp", config.tensor_ranks});
    if (config.expert_ranks > 0) axes.axes.push_back({"ep", config.expert_ranks});
    const auto mesh = comm::make_mesh(world, axes);
    if (config.split) program = program->apply(config.split(mesh->axis("pp")));
    Value::Table shard = config.shard;
    shard["stage"] = config.stage;
    if (config.stage == 0) shard.erase("gather_bucket_bytes");  // nothing is gathered
    shard["axis"] = Object::of<Axis>(config.expert_ranks > 0 ? mesh->join({"dp", "ep"}) : mesh->axis("dp"));
    if (config.node_shared) shard.emplace("node_shared", *config.node_shared);
    if (config.replicas > 1) shard["replicate"] = Object::of<Axis>(mesh->axis("replica"));
    if (!config.reduce_every.empty()) shard["reduce_every"] = config.reduce_every;
    if (config.bucket_bytes >= 0) shard["bucket_bytes"] = config.bucket_bytes;
    if (config.prefetch >= 0) shard["prefetch"] = config.prefetch;
    if (config.persist_below >= 0) shard["persist_below"] = config.persist_below;
    if (config.max_reuse_distance >= 0) shard["max_reuse_distance"] = config.max_reuse_distance;
    program = program->apply(zero::make_shard(zero::parse_shard_options(shard)));
  }
  if (config.split_backward) program = program->apply(make_split_backward());
  if (config.recompute_every > 0) program = program->apply(make_recompute(config.recompute_every));
  if (config.last_pass) program = program->apply(config.last_pass);
  options.optimizer = make_optimizer(config);
  options.clip = config.clip;
  if (config.loss_scale) options.loss_scale = config.loss_scale;
  return Trainer::make(program, options);
}

namespace {

at::Tensor flatten(Trainer& trainer, bool gradients) {
  std::vector<at::Tensor> parts;
  for (const ParamInfo& param : trainer.state().model->params) {
    if (gradients && !param.trainable) continue;
    const at::Tensor values = gradients ? trainer.tensors().gradient(param.name) : trainer.tensors().master(param.name);
    parts.push_back(values.reshape({-1}).to(at::kDouble));
  }
  return at::cat(parts);
}

}  // namespace

RankRun::RankRun(const World& world, const Config& config)
    : world_(world), config_(config), trainer_(make_trainer(world, config)) {}

int RankRun::data_ranks() const {
  return world_.size / config_.stage_ranks / config_.tensor_ranks;
}

Batch RankRun::part_of_batch() const {
  const int64_t part = config_.samples / data_ranks();
  const Batch whole = config_.batch ? config_.batch(steps_) : global_batch(steps_, config_.seed, config_.samples);
  return part_of(whole, world_.rank / config_.tensor_ranks % data_ranks() * part, part);
}

StepResult RankRun::step_by_hand(const Batch& mine) {
  const int64_t part = config_.samples / world_.size / config_.micro_batches;
  for (int m = 0; m < config_.micro_batches; ++m) {
    trainer_->forward(part_of(mine, m * part, part));
    trainer_->backward();
  }
  return trainer_->finish_step();
}

StepResult RankRun::step() {
  const Batch mine = part_of_batch();
  const StepResult result =
      config_.by_hand ? step_by_hand(mine) : trainer_->step(config_.cut ? config_.cut(mine) : StepBatch(mine));
  outcome_.losses.push_back(result.loss);
  outcome_.norms.push_back(result.grad_norm.value());
  const bool is_asked = config_.gradient || (config_.stage <= 0 && config_.reduce_every != "micro_batch");
  if (steps_ == 0 && is_asked) outcome_.first_gradient = flatten(*trainer_, true);
  ++steps_;
  return result;
}

Outcome RankRun::finish() {
  outcome_.evaluated = trainer_->evaluate(part_of_batch()).loss;
  outcome_.weights = flatten(*trainer_, false);
  return outcome_;
}

Outcome train(const Config& config) {
  std::vector<Outcome> runs(config.ranks);
  spawn(config.ranks, [&](const World& world) {
    RankRun run(world, config);
    for (int step = 0; step < config.steps; ++step) run.step();
    runs[world.rank] = run.finish();
  });
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

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]) / std::fabs(b[i]));
  return worst;
}

}  // namespace zt::test
