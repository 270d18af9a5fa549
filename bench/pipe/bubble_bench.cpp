// Measures the bubbles of pipeline schedules, and compares them with those of the simulated step. Layers sleep, so that two cores
// can play eight ranks, which are threads. The simulation uses the times that trainer:costs measures.
//
//   build/release/bench/bubble_bench --ranks 4 --micro-batches 12 --ms 20
//
// Prints a table: seconds without a task between a rank's first and last one (span) and until all ranks are done (barrier), of
// the worst rank; and the largest difference of a rank from the simulation, as a part of the step.
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "flat/adam.h"
#include "mesh/mesh.h"
#include "schedule/recipes.h"
#include "sleep_layer.h"
#include "split/split.h"
#include "support/spawn.h"
#include "zt/train/trainer.h"

namespace zt {
namespace {

struct Options {
  int ranks = 4, micro_batches = 12;
  double ms = 20;  // of each of F, I and W of a rank's part of the model
  std::vector<std::string> schedules = {};
};

constexpr int kParts = 2;  // sleeping layers per rank

std::shared_ptr<Model> make_model(const Options& options) {
  const std::chrono::microseconds each(std::llround(options.ms * 1000 / kParts));
  std::vector<NamedLayer> layers;
  for (int i = 0; i < kParts * options.ranks; ++i)
    layers.push_back({fmt::format("sleep.{}", i), make_sleep_layer({each, each, each}, i == 0)});
  layers.push_back({"loss", make_mean_loss()});
  return std::make_shared<Model>(std::move(layers), 1);
}

// The tasks of one rank in a step.
struct Line {
  double begin = 0, end = 0, busy = 0;  // milliseconds of one clock
};

Line line_of(const Trace& trace, int rank) {
  Line line{.begin = 1e300};
  for (const auto& event : nlohmann::json::parse("[" + trace.events(rank) + "]")) {
    if (event.value("ph", "") != "X") continue;
    const std::string name = event.at("name");
    const bool is_layer = name.size() > 2 && name[1] == ' ' && std::string("FBIW").find(name[0]) != std::string::npos;
    if (!is_layer) continue;
    const double begin = event.at("ts").get<double>() / 1000, length = event.at("dur").get<double>() / 1000;
    line.begin = std::min(line.begin, begin);
    line.end = std::max(line.end, begin + length);
    line.busy += length;
  }
  return line;
}

Line line_of(const SimulatedRank& rank) {
  Line line{.begin = 1e300};
  for (const SimulatedAction& action : rank.actions) {
    if (action.role != Role::compute) continue;
    line.begin = std::min(line.begin, action.begin * 1000);
    line.end = std::max(line.end, action.end * 1000);
    line.busy += (action.end - action.begin) * 1000;
  }
  return line;
}

// The bubbles of each rank, in milliseconds, and the time from the first task to the last.
struct Bubbles {
  std::vector<double> span, barrier;
  double step = 0;
};

Bubbles bubbles_of(const std::vector<Line>& lines) {
  double begin = 1e300, end = 0;
  for (const Line& line : lines) {
    begin = std::min(begin, line.begin);
    end = std::max(end, line.end);
  }
  Bubbles bubbles;
  bubbles.step = end - begin;
  for (const Line& line : lines) {
    bubbles.span.push_back(line.end - line.begin - line.busy);
    bubbles.barrier.push_back(end - begin - line.busy);
  }
  return bubbles;
}

struct Lines {
  std::vector<Line> measured, simulated;  // by rank
};

Lines measure(const pipe::Recipe& recipe, const Options& options) {
  Lines lines{std::vector<Line>(static_cast<size_t>(options.ranks)), std::vector<Line>(static_cast<size_t>(options.ranks))};
  test::spawn(options.ranks, [&](const World& world) {
    comm::MeshOptions axes;
    axes.axes = {{"pp", options.ranks}};
    const auto mesh = comm::make_mesh(world, axes);
    std::vector<int> counts(static_cast<size_t>(options.ranks * recipe.chunks), kParts / recipe.chunks);
    ++counts.back();  // the loss
    const auto program =
        Program(make_model(options), options.micro_batches, Precision::fp32)
            .apply(pipe::make_split(
                {.axis = mesh->axis("pp"), .name = recipe.name, .partition = {Value::List(counts.begin(), counts.end())}}));
    const auto trainer = Trainer::make(program, {.optimizer = optim::make_adamw(Value::Table{{"lr", 0.0}})});
    const Batch batch{{"x", at::ones({options.micro_batches, 1})}};
    const Costs costs = trainer->costs(batch, 2);
    if (world.rank == 0) {
      const auto simulation = trainer->simulate(batch, costs);
      for (const SimulatedRank& alike : simulation->ranks) {
        for (const int rank : alike.ranks) lines.simulated[static_cast<size_t>(rank)] = line_of(alike);
      }
    }
    mesh->axis("pp")->communicator->barrier();
    trainer->step(batch);
    trainer->trace().start();
    trainer->step(batch);
    trainer->trace().stop();
    lines.measured[static_cast<size_t>(world.rank)] = line_of(trainer->trace(), world.rank);
  });
  return lines;
}

void compare(const pipe::Recipe& recipe, const Options& options) {
  const Lines lines = measure(recipe, options);
  const Bubbles measured = bubbles_of(lines.measured), simulated = bubbles_of(lines.simulated);
  double difference = 0;
  for (size_t rank = 0; rank < lines.measured.size(); ++rank) {
    difference = std::max({difference, std::abs(measured.span[rank] - simulated.span[rank]),
                           std::abs(measured.barrier[rank] - simulated.barrier[rank])});
  }
  fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} % |\n", recipe.name, simulated.step,
             measured.step, std::ranges::max(simulated.span), std::ranges::max(measured.span),
             std::ranges::max(simulated.barrier), std::ranges::max(measured.barrier), 100 * difference / simulated.step);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the bubbles of pipeline schedules with layers that sleep.");
  app.add_option("--ranks", options.ranks, "ranks of the pipeline, as threads")->check(CLI::Range(1, 64));
  app.add_option("--micro-batches", options.micro_batches, "micro-batches per step")->check(CLI::Range(1, 1024));
  app.add_option("--ms", options.ms, "milliseconds of F, I and W of a rank's part")->check(CLI::Range(0.1, 1000.0));
  app.add_option("--schedules", options.schedules, "names; default: all");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{} ranks, {} micro-batches, F = I = W = {} ms. In ms, simulated and measured\n\n", options.ranks,
             options.micro_batches, options.ms);
  fmt::print("| schedule | step | measured | span | measured | barrier | measured | largest difference |\n");
  fmt::print("|---|---|---|---|---|---|---|---|\n");
  for (const pipe::Recipe& recipe : pipe::recipes()) {
    const bool is_wanted =
        options.schedules.empty() || std::ranges::find(options.schedules, recipe.name) != options.schedules.end();
    if (is_wanted) compare(recipe, options);
  }
  return 0;
}

}  // namespace
}  // namespace zt

int main(int argc, char** argv) {
  return zt::run(argc, argv);
}
