// Measures how much of the time of all_to_all a step with experts hides: the tokens of a micro-batch are under way while another
// one computes. Two ranks, as threads, share the experts over a network whose speed is set, so copies cost no more than without
// it. Every form of the step runs in turn.
//
//   taskset -c 0,1 build/release/bench/overlap_bench --exchange 0.3 --micro-batches 8
//
// Prints a row for each share of the exchange's time in the computing time, with the seconds of a step: without the network's
// time, as is (each all_to_all is waited for), with overlap in one micro-batch, with overlap and pairs of micro-batches; and what
// remains visible of the exchange, (paired - computing) / exchange.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "comm/slow_backend.h"
#include "exchange/exchange.h"
#include "flat/adam.h"
#include "layers/layers.h"
#include "mesh/mesh.h"
#include "providers.h"
#include "routing/router.h"
#include "shard.h"
#include "support/spawn.h"
#include "timing.h"
#include "zt/program/micro_batch_pairs.h"
#include "zt/train/trainer.h"

namespace zt {
namespace {

struct Options {
  std::vector<double> exchanges = {0.1, 0.2, 0.3, 0.4};
  int micro_batches = 8, layers = 4, steps = 7;
  int64_t hidden = 256, seq = 128, samples = 4, experts = 4, top_k = 2;
  double latency_us = 50;
};

constexpr int kRanks = 2;
constexpr int64_t kVocab = 2048;

void add_block(const Options& options, int index, Async async, std::vector<NamedLayer>& layers) {
  const std::string name = fmt::format("blocks.{}.", index);
  moe::ExchangeOptions exchange{.experts = options.experts, .hidden = options.hidden, .axis = "ep", .ranks = kRanks};
  exchange.send.async = async;
  // Balanced and padded: no counts are exchanged, and all ranks have the same work.
  const Value::Table capacity{{"train", 1.0}, {"pad", true}};
  const Value::Table router{{"hidden", options.hidden},
                            {"experts", options.experts},
                            {"top_k", options.top_k},
                            {"routes", "balanced"},
                            {"capacity", capacity}};
  const moe::RouterOptions parsed = moe::parse_router(router);
  exchange.padding = parsed.capacity;
  layers.push_back({name + "attention", nn::make_attention_block(Value::Table{{"hidden", options.hidden}, {"heads", 4}})});
  layers.push_back({name + "router", moe::make_router(parsed)});
  layers.push_back({name + "dispatch", moe::make_dispatch(exchange)});
  layers.push_back({name + "experts", nn::make_grouped_mlp(Value::Table{{"groups", options.experts},
                                                                        {"hidden", options.hidden},
                                                                        {"ffn", 4 * options.hidden},
                                                                        {"axis", "ep"},
                                                                        {"parts", kRanks}})});
  layers.push_back({name + "combine", moe::make_combine(exchange)});
  layers.push_back({name + "add", nn::make_residual(Value::Table{})});
}

std::shared_ptr<Model> make_model(const Options& options, Async async) {
  std::vector<NamedLayer> layers{
      {"embedding", nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", options.hidden}, {"positions", options.seq}})}};
  for (int i = 0; i < options.layers; ++i) add_block(options, i, async, layers);
  layers.push_back({"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", options.hidden}})});
  return std::make_shared<Model>(std::move(layers), 1);
}

// The forms of the step.
enum Form : uint8_t { computing, as_is, overlapped, paired, kForms };

// One rank: trains the same model in every form.
class Rank {
 public:
  Rank(const World& world, const Options& options)
      : network_(std::make_shared<Network>()),
        mesh_(make_slow_mesh(world, MeshShape({{"ep", world.size}}, world.size), network_)) {
    at::set_num_threads(1);
    for (const Form form : {as_is, overlapped, paired}) trainers_.push_back(make_trainer(options, form));
    const at::Tensor tokens = at::randint(kVocab, {options.samples * options.micro_batches, options.seq}, at::kLong);
    batch_ = {{"tokens", tokens}, {"labels", tokens.roll(-1, 1)}};
  }

  // Returns the seconds of a step.
  double step(Form form) {
    Trainer& trainer = *trainers_[form == paired ? 2 : form == overlapped ? 1 : 0];
    mesh_->axis("ep")->communicator->barrier();
    return trainer.step(batch_).seconds;
  }
  Network& network() { return *network_; }

 private:
  std::shared_ptr<Trainer> make_trainer(const Options& options, Form form) const {
    const auto model = make_model(options, form == as_is ? Async::no : Async::yes);
    auto program = std::make_shared<Program>(model, options.micro_batches, Precision::fp32);
    if (form == paired) program = program->apply(make_micro_batch_pairs());
    const Value::Table shard{{"stage", 0}, {"axis", Object::of<Axis>(mesh_->axis("ep"))}, {"reduce_every", "step"}};
    program = program->apply(zero::make_shard(zero::parse_shard_options(shard)));
    return Trainer::make(program, {.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-4}})});
  }

  std::shared_ptr<Network> network_;
  std::shared_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Trainer>> trainers_;
  Batch batch_;
};

// Sets the speed at which the exchanges of a step take the given time. Needs their time at 1 byte per second.
double speed_for(double seconds, double bytes, double operations, const Options& options) {
  return bytes / std::max(1e-9, seconds - operations * options.latency_us * 1e-6);
}

void run_rank(const World& world, const Options& options) {
  Rank rank(world, options);
  std::vector<double> alone;
  for (int i = 0; i < 3; ++i) alone.push_back(rank.step(computing));
  for (const Form form : {overlapped, paired}) rank.step(form);
  // All exchanges have the same size: each token goes to one of the ranks per route, half of them to the other.
  const double operations = 4.0 * options.layers * options.micro_batches;
  const double bytes =
      operations * static_cast<double>(options.samples * options.seq * options.top_k / kRanks * options.hidden) * 4;
  const double computing_seconds = median(alone);
  for (const double share : options.exchanges) {
    std::vector<std::vector<double>> times(kForms);
    double exchange = 0;
    for (int i = 0; i < options.steps; ++i) {
      for (const Form form : {computing, as_is, overlapped, paired}) {
        rank.network().seconds = options.latency_us * 1e-6;
        rank.network().bytes_per_second =
            form == computing ? 0 : speed_for(share * computing_seconds, bytes, operations, options);
        rank.network().spent = 0;
        times[form].push_back(rank.step(form));
        if (form == as_is) exchange = rank.network().spent;
      }
    }
    if (world.rank != 0) continue;
    std::vector<double> ms;
    for (const auto& of_form : times) ms.push_back(1000 * median(of_form));
    fmt::print("| {:.0f} % | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} % |\n", 100 * share, ms[computing],
               1000 * exchange, ms[as_is], ms[overlapped], ms[paired], 100 * (ms[paired] - ms[computing]) / (1000 * exchange));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how much of the time of all_to_all pairs of micro-batches hide.");
  app.add_option("--exchange", options.exchanges, "times of the exchanges, as parts of the computing time")
      ->check(CLI::PositiveNumber);
  app.add_option("--micro-batches", options.micro_batches, "micro-batches per step")->check(CLI::Range(1, 1024));
  app.add_option("--layers", options.layers, "blocks, each with experts")->check(CLI::Range(1, 128));
  app.add_option("--hidden", options.hidden, "width")->check(CLI::Range(4, 8192));
  app.add_option("--seq", options.seq, "tokens per sample")->check(CLI::Range(1, 8192));
  app.add_option("--samples", options.samples, "samples per micro-batch")->check(CLI::Range(1, 1024));
  app.add_option("--latency", options.latency_us, "microseconds of each exchange, besides the time of its bytes");
  app.add_option("--steps", options.steps, "timed steps of each form")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  register_gemm_providers();
  fmt::print("{} ranks, {} micro-batches of {} samples, {} blocks of {}. Times in ms, medians of {}\n\n", kRanks,
             options.micro_batches, options.samples, options.layers, options.hidden, options.steps);
  fmt::print(
      "| exchange | computing | exchange alone | as is | overlap | overlap and pairs | visible |\n|---|---|---|---|---|---|---|\n");
  test::spawn(kRanks, [&](const World& world) { run_rank(world, options); });
  return 0;
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  return zt::run(argc, argv);
}
