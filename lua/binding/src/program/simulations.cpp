// Simulated steps: program:simulate, trainer:simulate and trainer:costs.
#include <algorithm>
#include <fstream>

#include "program/batches.h"
#include "program/open.h"
#include "zt/base/options.h"
#include "zt/simulate/simulation.h"
#include "zt/train/trainer.h"

namespace zt::lua {

namespace {

struct SimulateOptions {
  Value costs, batch, optimizer;
  std::vector<int> ranks;
};

const Schema<SimulateOptions>& simulate_schema() {
  static const auto schema =
      Schema<SimulateOptions>("program:simulate")
          .required("costs", &SimulateOptions::costs,
                    "a machine such as \"h200\", a JSON file, or a table as trainer:costs(batch) returns it")
          .required("batch", &SimulateOptions::batch, "each rank's part of a global batch; only the shapes matter")
          .optional("ranks", &SimulateOptions::ranks, "the ranks to describe, as a list; by default one of each kind")
          .optional("optimizer", &SimulateOptions::optimizer, "the optimizer; by default one with two states per parameter");
  return schema;
}

Costs to_costs(const Value& value) {
  const auto* name = value.get_if<std::string>();
  return name ? find_costs(*name) : parse_costs(value);
}

// Leaves out the kinds of ranks to which none of these belongs, unless the list is empty.
void keep_only(Simulation& simulation, const std::vector<int>& ranks) {
  const auto belongs = [&](const SimulatedRank& kind) {
    return std::ranges::any_of(ranks, [&](int rank) { return std::ranges::binary_search(kind.ranks, rank); });
  };
  const auto is_known = [&](int rank) {
    return std::ranges::any_of(simulation.ranks, [&](const auto& kind) { return std::ranges::binary_search(kind.ranks, rank); });
  };
  for (const int rank : ranks) {
    if (!is_known(rank)) misuse("program:simulate.ranks: there is no rank {} on the mesh {}", rank, simulation.mesh);
  }
  if (!ranks.empty()) std::erase_if(simulation.ranks, [&](const SimulatedRank& kind) { return !belongs(kind); });
}

// program:simulate{costs = "h200", batch = batch} -> a Simulation. Collective, like zt.trainer.
int simulate_program(lua_State* L) {
  const auto program = check<Program>(L, 1);
  const SimulateOptions options = simulate_schema().parse(check_value(L, 2));
  std::shared_ptr<Optimizer> optimizer;
  if (!options.optimizer.is_nil()) convert(options.optimizer, "program:simulate.optimizer", optimizer);
  const auto simulation =
      simulate(program, optimizer, to_step_batch(options.batch, "program:simulate.batch"), to_costs(options.costs));
  keep_only(*simulation, options.ranks);
  push(L, simulation);
  return 1;
}

// trainer:simulate(batch, costs, [program]) -> a Simulation
int simulate_trainer(lua_State* L) {
  const auto program = is_absent(L, 4) ? nullptr : check<Program>(L, 4);
  push(L, check<Trainer>(L, 1)->simulate(check_step_batch(L, 2), to_costs(check_value(L, 3)), program));
  return 1;
}

struct MeasureOptions {
  int steps = 5;
};

// trainer:costs(batch, {steps = 5}) -> a table for simulate. Runs so many training steps.
int measure_costs(lua_State* L) {
  static const auto schema = Schema<MeasureOptions>("trainer:costs")
                                 .optional("steps", &MeasureOptions::steps, "training steps to measure", Check<int>(at_least(1)));
  push(L, to_value(check<Trainer>(L, 1)->costs(check_step_batch(L, 2), schema.parse(check_value(L, 3)).steps)));
  return 1;
}

struct DrawnAction {
  std::string text;
  double begin = 0, stop = 0;
  int micro_batch = -1;
  bool is_transfer = false;
};

// `kinds`: the names of the kinds that are registered.
SimulatedAction to_action(const Value& value, const std::vector<std::string>& kinds) {
  static const auto schema = Schema<DrawnAction>("zt.simulation.ranks.actions")
                                 .required("text", &DrawnAction::text, "the action: its first word is its kind")
                                 .required("begin", &DrawnAction::begin, "seconds since the begin of the step")
                                 .required("stop", &DrawnAction::stop, "the same, of its end")
                                 .optional("micro_batch", &DrawnAction::micro_batch, "its micro-batch")
                                 .optional("is_transfer", &DrawnAction::is_transfer, "the rank does not compute meanwhile");
  const DrawnAction drawn = schema.parse(value);
  SimulatedAction action{
      .text = drawn.text, .kind = drawn.text.substr(0, drawn.text.find(' ')), .micro_batch = drawn.micro_batch};
  if (std::ranges::find(kinds, action.kind) != kinds.end()) {
    const Kind& known = kind(kind_id(action.kind));
    action.role = known.role;
    if (known.target != Index::none) std::sscanf(drawn.text.c_str(), "%*s %d", &action.target);
  }
  if (drawn.stop < drawn.begin) misuse("zt.simulation: the action {} ends before it begins", drawn.text);
  (drawn.is_transfer ? action.transfer_begin : action.begin) = drawn.begin;
  (drawn.is_transfer ? action.transfer_end : action.end) = drawn.stop;
  return action;
}

struct DrawnRank {
  std::string name;
  double seconds = 0;
  Value::List actions;
};

struct DrawnStep {
  std::string title;
  Value::List ranks;
};

// zt.simulation{title = "runs/x", ranks = {{name = "rank 0", seconds = 1, actions = {{text = "F 0 0", begin = 0, stop = 1}}}}}
// -> a Simulation to be drawn, of a step that was measured. Its time is that of the longest rank
int make_simulation(lua_State* L) {
  static const auto rank_schema = Schema<DrawnRank>("zt.simulation.ranks")
                                      .required("name", &DrawnRank::name, "what the picture calls the row")
                                      .required("seconds", &DrawnRank::seconds, "the time of the step that the rank is a part of")
                                      .required("actions", &DrawnRank::actions, "a list of {text, begin, stop, ...}");
  static const auto schema = Schema<DrawnStep>("zt.simulation")
                                 .required("title", &DrawnStep::title, "what the picture shows")
                                 .required("ranks", &DrawnStep::ranks, "a list of {name, seconds, actions}");
  const DrawnStep step = schema.parse(check_value(L, 1));
  const std::vector<std::string> kinds = kind_names();
  const auto simulation = std::make_shared<Simulation>();
  simulation->mesh = step.title;
  for (const Value& value : step.ranks) {
    const DrawnRank drawn = rank_schema.parse(value);
    SimulatedRank& rank = simulation->ranks.emplace_back();
    rank.name = drawn.name;
    rank.ranks = {static_cast<int>(simulation->ranks.size()) - 1};
    for (const Value& action : drawn.actions) rank.actions.push_back(to_action(action, kinds));
    set_bubbles(rank, drawn.seconds);
    simulation->seconds = std::max(simulation->seconds, drawn.seconds);
  }
  push(L, simulation);
  return 1;
}

// zt.costs("h200") -> a table for simulate, with all rates of the machine
int named_costs(lua_State* L) {
  push(L, to_value(find_costs(check_string(L, 1))));
  return 1;
}

// simulation.work -> {samples, tokens, flops, mfu}: of a step, over all ranks. mfu: nil if the peak is not known
int step_work(lua_State* L) {
  const auto simulation = check<Simulation>(L, 1);
  const StepWork& work = simulation->work;
  Value::Table table{{"samples", work.samples}, {"tokens", work.tokens}, {"flops", work.flops}};
  if (simulation->mfu() > 0) table["mfu"] = simulation->mfu();
  push(L, Value(std::move(table)));
  return 1;
}

Value to_value(const SimulatedAction& action) {
  Value::Table table{{"text", action.text},
                     {"kind", action.kind},
                     {"begin", action.begin},
                     {"stop", action.end},
                     {"held_bytes", action.held_bytes}};
  if (action.target >= 0) table["target"] = action.target;
  if (action.micro_batch >= 0) table["micro_batch"] = action.micro_batch;
  if (action.transfer_end > action.transfer_begin) {
    table["transfer_begin"] = action.transfer_begin;
    table["transfer_stop"] = action.transfer_end;
  }
  return table;
}

// simulation.ranks -> one table for each kind of rank
int simulated_ranks(lua_State* L) {
  Value::List list;
  for (const SimulatedRank& rank : check<Simulation>(L, 1)->ranks) {
    Value::List actions;
    for (const SimulatedAction& action : rank.actions) actions.push_back(to_value(action));
    list.push_back(Value::Table{{"ranks", rank.name},
                                {"count", static_cast<int64_t>(rank.ranks.size())},
                                {"busy", rank.busy},
                                {"span_bubble", rank.span_bubble},
                                {"barrier_bubble", rank.barrier_bubble},
                                {"constant_bytes", rank.constant_bytes},
                                {"peak_bytes", rank.peak_bytes},
                                {"peak_action", rank.peak_action},
                                {"actions", std::move(actions)}});
  }
  push(L, Value(list));
  return 1;
}

// Writes the text to the file that argument 2 names.
int write_file(lua_State* L, const std::string& text) {
  const std::string path = check_string(L, 2);
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) fault("the file '{}' cannot be written", path);
  return 0;
}

// simulation:write_picture(path): an SVG file
int write_picture(lua_State* L) {
  return write_file(L, check<Simulation>(L, 1)->picture());
}

// simulation:write_trace(path): a JSON file for Chrome's or Perfetto's trace viewer
int write_trace(lua_State* L) {
  return write_file(L, check<Simulation>(L, 1)->trace());
}

}  // namespace

void open_simulations(Module& module) {
  module.function<make_simulation>("simulation");
  module.function<named_costs>("costs");
  module.type<Program>().method<simulate_program>("simulate");
  module.type<Trainer>().method<simulate_trainer>("simulate").method<measure_costs>("costs");
  module.type<Simulation>()
      .getter<&Simulation::seconds>("seconds")
      .getter<step_work>("work")
      .getter<simulated_ranks>("ranks")
      .method<write_picture>("write_picture")
      .method<write_trace>("write_trace")
      .metamethod<&Simulation::text>("__tostring");
}

}  // namespace zt::lua
