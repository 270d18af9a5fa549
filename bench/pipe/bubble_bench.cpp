// Measures the bubbles of pipeline schedules, and compares them with those of the played schedule. Layers sleep, so that two
// cores can play eight ranks, which are threads.
//
//   build/release/bench/bubble_bench --ranks 4 --micro-batches 12 --ms 20
//
// Prints a table: seconds without a task between a rank's first and last one (span) and until all ranks are done (barrier), of
// the worst rank; and the largest difference of a rank from the played schedule, as a part of the step.
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "adam.h"
#include "mesh/mesh.h"
#include "schedule/recipes.h"
#include "schedule/timing.h"
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

std::vector<Line> measure(const pipe::Recipe& recipe, const Options& options) {
  std::vector<Line> lines(static_cast<size_t>(options.ranks));
  test::spawn(options.ranks, [&](const World& world) {
    comm::MeshOptions axes;
    axes.axes = {{"pp", options.ranks}};
    const auto mesh = comm::make_mesh(world, axes);
    std::vector<int> counts(static_cast<size_t>(options.ranks * recipe.chunks), kParts / recipe.chunks);
    ++counts.back();  // the loss
    const auto spec =
        ProgramSpec(make_model(options), options.micro_batches, Precision::fp32)
            .apply(pipe::make_split(
                {.axis = mesh->axis("pp"), .name = recipe.name, .partition = {Value::List(counts.begin(), counts.end())}}));
    const auto trainer = Trainer::make(spec, {.optimizer = optim::make_adamw(Value::Table{{"lr", 0.0}})});
    const Batch batch{{"x", at::ones({options.micro_batches, 1})}};
    trainer->step(batch);
    trainer->trace().start();
    trainer->step(batch);
    trainer->trace().stop();
    lines[static_cast<size_t>(world.rank)] = line_of(trainer->trace(), world.rank);
  });
  return lines;
}

void compare(const pipe::Recipe& recipe, const Options& options) {
  const pipe::Schedule schedule = pipe::make_schedule(recipe.name, {options.ranks, recipe.chunks, options.micro_batches});
  const pipe::Timing played = pipe::time_schedule(schedule);
  const std::vector<Line> lines = measure(recipe, options);
  double begin = 1e300, end = 0, span = 0, barrier = 0, difference = 0;
  for (const Line& line : lines) {
    begin = std::min(begin, line.begin);
    end = std::max(end, line.end);
  }
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    const double its_span = lines[rank].end - lines[rank].begin - lines[rank].busy, its_barrier = end - begin - lines[rank].busy;
    span = std::max(span, its_span);
    barrier = std::max(barrier, its_barrier);
    difference = std::max({difference, std::abs(its_span - played.ranks[rank].span_bubble * options.ms),
                           std::abs(its_barrier - played.ranks[rank].barrier_bubble * options.ms)});
  }
  double played_span = 0;
  for (const auto& rank : played.ranks) played_span = std::max(played_span, rank.span_bubble);
  fmt::print("| {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} % |\n", recipe.name, end - begin,
             played_span * options.ms, span, played.ranks[0].barrier_bubble * options.ms, barrier,
             100 * difference / (played.seconds * options.ms));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the bubbles of pipeline schedules with layers that sleep.");
  app.add_option("--ranks", options.ranks, "ranks of the pipeline, as threads")->check(CLI::Range(1, 64));
  app.add_option("--micro-batches", options.micro_batches, "micro-batches per step")->check(CLI::Range(1, 1024));
  app.add_option("--ms", options.ms, "milliseconds of F, I and W of a rank's part")->check(CLI::Range(0.1, 1000.0));
  app.add_option("--schedules", options.schedules, "names; default: all");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{} ranks, {} micro-batches, F = I = W = {} ms. In ms; played | measured\n\n", options.ranks, options.micro_batches,
             options.ms);
  fmt::print("| schedule | step | span | span, measured | barrier | barrier, measured | largest difference |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
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
