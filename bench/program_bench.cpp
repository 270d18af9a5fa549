// Measures the overhead of step programs: the executor's time per empty action, and the verifier's time before the first step.
#include <benchmark/benchmark.h>

#include "zt/execute/executor.h"
#include "zt/program/rank_program.h"

namespace zt {
namespace {

// Returns a chain of `layers` layers with one unit each.
ModelInfo chain(int layers) {
  ModelInfo info;
  for (int p = 0; p < layers; ++p) {
    PositionInfo position;
    position.name = std::to_string(p);
    position.layer = p;
    if (p > 0) position.inputs.push_back({p - 1, 0});
    position.outputs.emplace_back();
    position.units = {p};
    info.positions.push_back(position);
    ParamInfo param;
    param.name = position.name + ".weight";
    param.shape = {256};
    param.room = 256;
    param.unit = p;
    param.positions = {p};
    info.params.push_back(param);
    UnitInfo unit;
    unit.name = position.name;
    unit.params = {p};
    unit.numel = 256;
    unit.positions = {p};
    info.units.push_back(unit);
  }
  return info;
}

class Nothing : public ActionHandler {
 public:
  Work start(const Action&, StepState& state) override {
    ++state.step;
    return {};
  }
};

void run_empty_actions(benchmark::State& bench) {
  const ModelInfo info = chain(static_cast<int>(bench.range(0)));
  Executor::Handlers handlers;
  for (const auto& name : kind_names()) handlers[kind_id(name)] = std::make_shared<Nothing>();
  Executor executor(
      base_program(info, Mode::train, 4), info, handlers, [](int) {}, nullptr);
  StepState state;
  state.model = &info;
  for (auto _ : bench) executor.run(state);
  const auto actions = static_cast<int64_t>(executor.program().actions.size());
  if (state.step != actions * static_cast<int64_t>(bench.iterations())) bench.SkipWithError("not every action ran");
  bench.SetItemsProcessed(bench.iterations() * actions);
  bench.counters["time/action"] = benchmark::Counter(static_cast<double>(actions),
                                                     benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(run_empty_actions)->Arg(8)->Arg(100);

void verify_four_ranks(benchmark::State& bench) {
  const ModelInfo info = chain(static_cast<int>(bench.range(0)));
  const RankProgram program = base_program(info, Mode::train, 4);
  const std::vector<const RankProgram*> programs(4, &program);
  const MeshShape mesh({{"dp", 4}}, 4);
  for (auto _ : bench) {
    if (!verify(info, mesh, programs).empty()) bench.SkipWithError("a good program was refused");
  }
  bench.SetItemsProcessed(bench.iterations() * 4 * static_cast<int64_t>(program.actions.size()));
}
BENCHMARK(verify_four_ranks)->Arg(8)->Arg(100)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace zt

BENCHMARK_MAIN();
