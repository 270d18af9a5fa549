// Measures the executor's time per action of a pipeline's program: one rank's layers do nothing, and its channels return at once.
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>

#include "schedule/recipes.h"
#include "split/lowering.h"
#include "split/transfers.h"
#include "zt/execute/executor.h"

namespace zt {
namespace {

// Takes every message, and receives the same tensors again and again.
class EmptyChannel : public Channel {
 public:
  const std::string& name() const override { return name_; }
  int depth() const override { return 1; }
  Work send(std::vector<at::Tensor>) override { return {}; }
  Received recv() override { return {{value_}, {}}; }

 private:
  std::string name_ = "empty";
  at::Tensor value_ = at::ones({1});
};

// A rank that only sends and receives in one channel.
class OneChannel : public Links {
 public:
  explicit OneChannel(Channel& channel) : channel_(channel) {}
  Communicator& comm(const std::vector<std::string>&) const override { misuse("there is no communicator"); }
  Communicator& control(const std::vector<std::string>&) const override { misuse("there is no communicator"); }
  Communicator& holders(const Unit&) const override { misuse("there is no communicator"); }
  Channel& channel(const Message&) const override { return channel_; }
  at::Device device() const override { return at::kCPU; }

 private:
  Channel& channel_;
};

// Stands for the layers: makes the values and gradients that are sent, and drops what is no longer used.
class EmptyLayers : public ActionHandler {
 public:
  Work start(const Action& action, StepState& state) override {
    if (action.kind == Kinds::get().forward) {
      state.values.put({action.target, 0}, action.micro_batch, value_);
    } else {
      for (const Edge& input : state.model->positions[static_cast<size_t>(action.target)].inputs)
        state.values.add_gradient(input, action.micro_batch, value_);
    }
    return {};
  }

 private:
  at::Tensor value_ = at::ones({1});
};

// Returns a chain of `positions` layers without parameters.
ModelInfo chain(int positions) {
  ModelInfo info;
  for (int p = 0; p < positions; ++p) {
    PositionInfo& position = info.positions.emplace_back();
    position.name = std::to_string(p);
    position.layer = p;
    if (p > 0) position.inputs.push_back({p - 1, 0});
    position.outputs.emplace_back();
  }
  return info;
}

// Rank 1 of 4, which receives and sends in both directions. Argument: number of layers of a stage.
void run_stage(benchmark::State& bench) {
  constexpr int kRanks = 4, kMicroBatches = 16;
  const auto layers = static_cast<int>(bench.range(0));
  const ModelInfo info = chain(kRanks * layers);
  pipe::Partition partition;
  for (int stage = 0; stage <= kRanks; ++stage) partition.push_back(stage * layers);
  RankProgram program = base_program(info, Mode::train, kMicroBatches);
  const auto schedule = pipe::make_schedule("one_f_one_b", {kRanks, 1, kMicroBatches});
  program.actions = pipe::lower(schedule, {info, partition, {"pp"}}, Mode::train, 1);
  Executor::Handlers handlers;
  for (const Action& action : program.actions) handlers[action.kind] = std::make_shared<EmptyLayers>();
  for (const auto& [kind, handler] : pipe::transfer_handlers()) handlers[kind] = handler;
  Executor executor(
      program, info, handlers, [](int) {}, nullptr);
  EmptyChannel channel;
  StepState state;
  state.model = &info;
  state.links = std::make_shared<const OneChannel>(channel);
  for (auto _ : bench) {
    state.values.begin(info, kMicroBatches);
    executor.run(state);
  }
  const auto actions = static_cast<int64_t>(program.actions.size());
  bench.SetItemsProcessed(bench.iterations() * actions);
  bench.counters["time/action"] = benchmark::Counter(static_cast<double>(actions),
                                                     benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(run_stage)->Arg(1)->Arg(8);

}  // namespace
}  // namespace zt

BENCHMARK_MAIN();
