// Measures what zero.compress saves. Two ranks, as threads, train the same model over a network whose speed is set, so that
// copies cost no more than without it. Every form of the gradients' sum runs in turn.
//
//   taskset -c 0,1 build/release/bench/compress_bench --exchange 0.5 2
//
// Prints for each form and stage the bytes that a rank sends in a step, and those of the formula in zero/README.md; and for each
// speed of the network the milliseconds of a step, with the part of the network's time that is visible: (step - computing) /
// (bytes / speed). The speeds are those at which the sum without compression takes the given parts of its computing time.
#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "comm/slow_backend.h"
#include "compress/compress.h"
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
  std::vector<double> exchanges = {0.5, 2};
  std::vector<int> stages = {0, 2};
  int layers = 4, steps = 7, rank = 4;
  int64_t hidden = 256, seq = 128, samples = 2;
};

constexpr int kRanks = 2;
constexpr int64_t kVocab = 2048;
const std::vector<std::string> kForms{"none", "powersgd", "int8", "onebit"};

std::shared_ptr<Model> make_model(const Options& options) {
  std::vector<NamedLayer> layers{
      {"embedding", nn::make_embedding(Value::Table{{"vocab", kVocab}, {"hidden", options.hidden}, {"positions", options.seq}})}};
  for (int i = 0; i < options.layers; ++i)
    layers.push_back({fmt::format("blocks.{}", i), nn::make_block(Value::Table{{"hidden", options.hidden}, {"heads", 4}})});
  layers.push_back({"head", nn::make_lm_loss(Value::Table{{"vocab", kVocab}, {"hidden", options.hidden}})});
  return std::make_shared<Model>(std::move(layers), 1);
}

// Returns the bytes of the formula in zero/README.md, and from stage 1 on those of the new parameters.
double formula_bytes(const ModelInfo& model, const std::string& form, int stage, int rank) {
  double bytes = 0;
  for (const ParamInfo& param : model.params) {
    const auto count = static_cast<double>(param.numel());
    const auto rows = static_cast<double>(param.shape[0]), columns = count / rows;
    const double all = stage == 0 ? 2 : 1;
    if (form == "none") bytes += all * 4 * count;
    else if (form == "int8") bytes += all * (1 + 4.0 / 256) * count;
    else if (form == "onebit") bytes += all * (1.0 / 8 + 4.0 / 256) * count;
    else if (param.shape.size() == 2 && rank * (rows + columns) < count) bytes += 8 * rank * (rows + columns);
    else bytes += 8 * count;
    if (stage > 0) bytes += 4 * count;
  }
  return bytes * (kRanks - 1) / kRanks;
}

// One rank: trains the same model in every form.
class Rank {
 public:
  Rank(const World& world, const Options& options, int stage)
      : options_(options), stage_(stage), network_(std::make_shared<Network>()) {
    at::set_num_threads(1);
    network_->carries_all = true;
    mesh_ = make_slow_mesh(world, MeshShape({{"dp", world.size}}, world.size), network_);
    for (const std::string& form : kForms) trainers_.push_back(make_trainer(form));
    const at::Tensor tokens = at::randint(kVocab, {options.samples, options.seq}, at::kLong);
    batch_ = {{"tokens", tokens}, {"labels", tokens.roll(-1, 1)}};
  }

  // Returns the seconds of a step by form and speed of the network (0: without limit), medians of several in turns.
  std::vector<std::vector<double>> measure(const std::vector<double>& speeds) {
    std::vector<std::vector<std::vector<double>>> times(kForms.size(), std::vector<std::vector<double>>(speeds.size()));
    for (int i = 0; i < options_.steps; ++i) {
      for (size_t form = 0; form < kForms.size(); ++form) {
        for (size_t k = 0; k < speeds.size(); ++k) {
          network_->bytes_per_second = speeds[k];
          times[form][k].push_back(step(form));
        }
      }
    }
    std::vector<std::vector<double>> medians(kForms.size());
    for (size_t form = 0; form < kForms.size(); ++form) {
      for (const auto& of_speed : times[form]) medians[form].push_back(median(of_speed));
    }
    return medians;
  }
  // Returns what a step of the form sends.
  double bytes_of(size_t form) {
    network_->bytes = 0;
    step(form);
    return network_->bytes;
  }
  const ModelInfo& model() const { return trainers_.front()->program().model()->info(); }

 private:
  double step(size_t form) {
    mesh_->axis("dp")->communicator->barrier();
    return trainers_[form]->step(batch_).seconds;
  }
  std::shared_ptr<Trainer> make_trainer(const std::string& form) const {
    auto program = std::make_shared<Program>(make_model(options_), 1, Precision::fp32);
    const Value::Table shard{{"stage", stage_}, {"axis", Object::of<Axis>(mesh_->axis("dp"))}, {"node_shared", false}};
    program = program->apply(zero::make_shard(zero::parse_shard_options(shard)));
    if (form != "none") {
      Value::Table compress{{"kind", form}};
      if (form == "powersgd") compress["rank"] = options_.rank;
      program = program->apply(zero::make_compress(zero::parse_compress_options(compress)));
    }
    return Trainer::make(program, {.optimizer = optim::make_adamw(Value::Table{{"lr", 1e-4}})});
  }

  Options options_;
  int stage_;
  std::shared_ptr<Network> network_;
  std::shared_ptr<Mesh> mesh_;
  std::vector<std::shared_ptr<Trainer>> trainers_;
  Batch batch_;
};

void run_stage(const World& world, const Options& options, int stage) {
  Rank rank(world, options, stage);
  std::vector<double> bytes;
  for (size_t form = 0; form < kForms.size(); ++form) bytes.push_back(rank.bytes_of(form));
  const double plain = rank.measure({0})[0][0];
  std::vector<double> speeds{0};
  for (const double share : options.exchanges) speeds.push_back(bytes[0] / (share * plain));
  const std::vector<std::vector<double>> times = rank.measure(speeds);
  std::vector<std::string> rows;
  for (size_t form = 0; form < kForms.size(); ++form) {
    const double computing = times[form][0], formula = formula_bytes(rank.model(), kForms[form], stage, options.rank);
    std::string row = fmt::format("| {} | {} | {:.3f} | {:.3f} | {:.1f} |", stage, kForms[form], 1e-6 * bytes[form],
                                  1e-6 * formula, 1000 * computing);
    for (size_t k = 1; k < speeds.size(); ++k) {
      const double visible = (times[form][k] - computing) / (bytes[form] / speeds[k]);
      row += fmt::format(" {:.1f} ({:.2f}) |", 1000 * times[form][k], visible);
    }
    rows.push_back(row);
  }
  if (world.rank != 0) return;
  for (const std::string& row : rows) fmt::print("{}\n", row);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what the compression of gradients saves.");
  app.add_option("--exchange", options.exchanges, "times of the uncompressed sum, as parts of the computing time")
      ->check(CLI::PositiveNumber);
  app.add_option("--stages", options.stages, "ZeRO stages")->check(CLI::Range(0, 3));
  app.add_option("--layers", options.layers, "blocks")->check(CLI::Range(1, 128));
  app.add_option("--hidden", options.hidden, "width")->check(CLI::Range(4, 8192));
  app.add_option("--seq", options.seq, "tokens per sample")->check(CLI::Range(1, 8192));
  app.add_option("--samples", options.samples, "samples per rank")->check(CLI::Range(1, 1024));
  app.add_option("--rank", options.rank, "of powersgd")->check(CLI::Range(1, 256));
  app.add_option("--steps", options.steps, "timed steps of each form")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  register_gemm_providers();
  fmt::print("{} ranks, {} blocks of {}. Times in ms, medians of {}; in parentheses what is visible of the network's time\n\n",
             kRanks, options.layers, options.hidden, options.steps);
  std::string head = "| stage | form | MB sent | by formula | computing |", line = "|---|---|---|---|---|";
  for (const double share : options.exchanges) {
    head += fmt::format(" network {} |", share);
    line += "---|";
  }
  fmt::print("{}\n{}\n", head, line);
  test::spawn(kRanks, [&](const World& world) {
    for (const int stage : options.stages) run_stage(world, options, stage);
  });
  return 0;
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  return zt::run(argc, argv);
}
