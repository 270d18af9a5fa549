// Measures how long it takes to build, verify and simulate the step of a model that fits no machine: 1 T parameters on 4,096
// ranks, 8 hand-made pipeline stages by 512 data-parallel ranks, ZeRO stage 1.
#include <ATen/ops/empty.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "layers/layers.h"
#include "mesh/mesh.h"
#include "numerics/support/hand_stages.h"
#include "shard.h"
#include "zt/simulate/simulation.h"

namespace zt {
namespace {

constexpr int kStages = 8, kCopies = 512, kLayers = 128, kMicroBatches = 32;
constexpr int64_t kHidden = 25600, kSeq = 4096;

std::shared_ptr<Program> make_program() {
  World world;
  world.size = kStages * kCopies;
  world.dry = true;
  world.ranks_per_node = 8;
  world.backend = "nccl";
  comm::MeshOptions options;
  options.axes = {{"pp", kStages}, {"dp", kCopies}};
  const auto mesh = comm::make_mesh(world, options);
  const auto model = nn::make_gpt(
      Value::Table{{"layers", kLayers}, {"hidden", kHidden}, {"heads", 200}, {"vocab", 51200}, {"seq", kSeq}, {"tied", false}});
  std::vector<int> begins;
  const int positions = static_cast<int>(model->positions().size());
  for (int stage = 0; stage <= kStages; ++stage) begins.push_back(stage * positions / kStages);
  Value::Table shard{{"stage", 1}, {"axis", Object::of<Axis>(mesh->axis("dp"))}};
  return Program(model, kMicroBatches, Precision::bf16)
      .apply(test::make_hand_stages(mesh->axis("pp"), begins))
      ->apply(zero::make_shard(zero::parse_shard_options(shard)));
}

void simulate_4096_ranks(benchmark::State& bench) {
  const auto tokens = at::empty({kMicroBatches, kSeq}, at::TensorOptions().dtype(at::kLong).device(at::kMeta));
  const Batch batch{{"tokens", tokens}, {"labels", tokens}};
  for (auto _ : bench) {
    const auto program = make_program();
    int64_t parameters = 0;
    for (const ParamInfo& param : program->model()->info().params) parameters += param.numel();
    const auto simulation = simulate(program, nullptr, batch, find_costs("h200"));
    if (simulation->ranks.size() != kStages || parameters < 1'000'000'000'000) bench.SkipWithError("not the step that was meant");
    bench.counters["step_s"] = simulation->seconds;
    bench.counters["parameters"] = static_cast<double>(parameters);
  }
}
BENCHMARK(simulate_4096_ranks)->Unit(benchmark::kMillisecond)->Iterations(1)->Repetitions(3);

}  // namespace
}  // namespace zt

BENCHMARK_MAIN();
