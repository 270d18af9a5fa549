// Measures how much of the communication of cut matrices a step hides. Two ranks, as threads, share the matrices of a GPT over a
// network whose speed is set, so copies cost no more than without it. Every form of the step runs in turn.
//
//   taskset -c 0,1 build/release/bench/tensor_overlap_bench --exchange 0.15 0.3
//   taskset -c 0,1 build/release/bench/tensor_overlap_bench --sequence-parallel
//
// Prints a row for each share of the communication's time in the computing time, with the seconds of a step: without the
// network's time, as is (each operation is waited for), and with overlap; and what remains visible of the communication.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "comm/slow_backend.h"
#include "flat/adam.h"
#include "layers/layers.h"
#include "mesh/mesh.h"
#include "providers.h"
#include "shard.h"
#include "support/spawn.h"
#include "timing.h"
#include "zt/train/trainer.h"

namespace zt {
namespace {

struct Options {
  std::vector<double> exchanges = {0.15, 0.3};
  int64_t layers = 4, hidden = 512, seq = 256, samples = 8;
  int steps = 7;
  double latency_us = 50;
  bool sequence_parallel = false;
};

constexpr int kRanks = 2;
constexpr int64_t kVocab = 2048;

// The forms of the step.
enum Form : uint8_t { computing, as_is, overlapped, kForms };

// One rank: trains the same model in every form.
class Rank {
 public:
  Rank(const World& world, const Options& options)
      : network_(std::make_shared<Network>()),
        mesh_(make_slow_mesh(world, MeshShape({{"dp", 1}, {"tp", kRanks}}, kRanks), network_)) {
    at::set_num_threads(1);
    network_->carries_all = true;
    for (const bool overlap : {false, true}) trainers_.push_back(make_trainer(options, overlap));
    const at::Tensor tokens = at::arange(options.samples * options.seq).remainder(kVocab).view({options.samples, options.seq});
    batch_ = {{"tokens", tokens}, {"labels", tokens.roll(-1, 1)}};
  }

  // Returns the seconds of a step.
  double step(Form form) {
    mesh_->axis("tp")->communicator->barrier();
    network_->spent = network_->bytes = 0;
    return trainers_[form == overlapped ? 1 : 0]->step(batch_).seconds;
  }
  Network& network() { return *network_; }

 private:
  std::shared_ptr<Trainer> make_trainer(const Options& options, bool overlap) const {
    const Value::Table gpt{{"layers", options.layers},
                           {"hidden", options.hidden},
                           {"heads", options.hidden / 64},
                           {"vocab", kVocab},
                           {"seq", options.seq},
                           {"tensor", Object::of<Axis>(mesh_->axis("tp"))},
                           {"sequence_parallel", options.sequence_parallel},
                           {"overlap", overlap}};
    auto program = std::make_shared<Program>(nn::make_gpt(gpt), 1, Precision::fp32);
    const Value::Table shard{{"stage", 0}, {"axis", Object::of<Axis>(mesh_->axis("dp"))}};
    program = program->apply(zero::make_shard(zero::parse_shard_options(shard)));
    return Trainer::make(program, {.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-4}})});
  }

  std::shared_ptr<Network> network_;
  std::shared_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Trainer>> trainers_;
  Batch batch_;
};

void run_rank(const World& world, const Options& options) {
  Rank rank(world, options);
  Network& network = rank.network();
  const double latency = options.latency_us * 1e-6;
  const auto seconds_of = [&](Form form, double seconds, double bytes_per_second) {
    network.seconds = seconds;
    network.bytes_per_second = bytes_per_second;
    return rank.step(form);
  };
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(seconds_of(computing, 0, 0));
  const double bytes = network.bytes;
  seconds_of(overlapped, 0, 0);
  seconds_of(as_is, latency, 1e18);
  const double latencies = network.spent;
  for (const double share : options.exchanges) {
    const double rate = bytes / std::max(1e-9, share * median(alone) - latencies);
    std::vector<std::vector<double>> times(kForms);
    double exchange = 0;
    for (int i = 0; i < options.steps; ++i) {
      times[computing].push_back(seconds_of(computing, 0, 0));
      times[as_is].push_back(seconds_of(as_is, latency, rate));
      exchange = network.spent;
      times[overlapped].push_back(seconds_of(overlapped, latency, rate));
    }
    if (world.rank != 0) continue;
    std::vector<double> ms;
    for (const auto& of_form : times) ms.push_back(1000 * median(of_form));
    fmt::print("| {:.0f} % | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} % |\n", 100 * share, ms[computing], 1000 * exchange,
               ms[as_is], ms[overlapped], 100 * (ms[overlapped] - ms[computing]) / (1000 * exchange));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how much of the communication of cut matrices a step hides.");
  app.add_option("--exchange", options.exchanges, "times of the communication, as parts of the computing time")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers, "blocks")->check(CLI::Range(1, 128));
  app.add_option("--hidden", options.hidden, "width, a multiple of 128")->check(CLI::Range(128, 8192));
  app.add_option("--seq", options.seq, "tokens per sample")->check(CLI::Range(1, 8192));
  app.add_option("--samples", options.samples, "samples per step")->check(CLI::Range(1, 1024));
  app.add_option("--latency", options.latency_us, "microseconds of each operation, besides the time of its bytes");
  app.add_option("--steps", options.steps, "timed steps of each form")->check(CLI::Range(1, 1000));
  app.add_flag("--sequence-parallel", options.sequence_parallel, "each rank has a share of the tokens between the matrices");
  CLI11_PARSE(app, argc, argv);
  register_gemm_providers();
  fmt::print("{} ranks, {} samples of {} tokens, {} blocks of {}. Times in ms, medians of {}\n\n", kRanks, options.samples,
             options.seq, options.layers, options.hidden, options.steps);
  fmt::print("| exchange | computing | exchange alone | as is | overlap | visible |\n|---|---|---|---|---|---|\n");
  test::spawn(kRanks, [&](const World& world) { run_rank(world, options); });
  return 0;
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  return zt::run(argc, argv);
}
