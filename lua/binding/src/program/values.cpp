#include "program/values.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zt/base/options.h"

namespace zt {

static const Schema<Home>& schema_of(const Home& /*home*/) {
  static const auto schema = Schema<Home>("program.units home")
                                 .optional("tier", &Home::tier, "device, host or file")
                                 .optional("stays", &Home::stays, "how many slices stay in memory", Check<int>(at_least(0)));
  return schema;
}

}  // namespace zt

namespace zt::lua {

Value to_value(const Action& action) {
  Value::Table table = action.attrs;
  table["kind"] = kind(action.kind).name;
  if (action.target >= 0) table["target"] = action.target;
  if (action.micro_batch >= 0) table["micro_batch"] = action.micro_batch;
  return table;
}

Value to_value(const std::vector<Action>& actions) {
  Value::List list;
  for (const Action& action : actions) list.push_back(to_value(action));
  return list;
}

namespace {

Value positions_value(const ModelInfo& model) {
  Value::List list;
  for (const PositionInfo& position : model.positions) {
    Value::List inputs;
    for (const Edge& edge : position.inputs) inputs.push_back(edge.position);
    list.push_back(Value::Table{{"name", position.name},
                                {"kind", position.kind},
                                {"layer", position.layer},
                                {"inputs", inputs},
                                {"units", to_list(position.units)},
                                {"axes", to_list(position.axes)}});
  }
  return list;
}

Value units_value(const ModelInfo& model) {
  Value::List list;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const UnitInfo& unit = model.units[u];
    list.push_back(Value::Table{{"index", static_cast<int64_t>(u)},
                                {"name", unit.name},
                                {"numel", unit.numel},
                                {"params", to_list(unit.params)},
                                {"positions", to_list(unit.positions)},
                                {"trainable", unit.trainable}});
  }
  return list;
}

// Returns a number for each statistic without dims, else a list of numbers.
Value stats_value(const Stats& stats) {
  Value::Table table;
  for (const auto& [name, values] : stats) {
    const auto* first = values.const_data_ptr<double>();
    if (values.dim() == 0) table[name] = *first;
    else table[name] = Value::List(first, first + values.numel());
  }
  return table;
}

Value::Table param_value(const ParamInfo& param) {
  return {{"name", param.name},           {"shape", to_list(param.shape)},
          {"offset", param.offset},       {"room", param.room},
          {"unit", param.unit},           {"positions", to_list(param.positions)},
          {"trainable", param.trainable}, {"is_matrix", param.is_matrix}};
}

// The same with what the rank `coord` holds.
Value::Table held_param_value(const ParamInfo& param, const Coord& coord) {
  Value::Table table = param_value(param);
  Value::List boxes;
  for (const Box& box : param.boxes(coord))
    boxes.emplace_back(Value::Table{{"begin", to_list(box.begin)}, {"stop", to_list(box.end)}});
  table["boxes"] = std::move(boxes);
  table["local_shape"] = to_list(param.local_shape(coord));
  return table;
}

// `is_shown`: whether the pass may know the coordinate along an axis. It sees no boxes that depend on another.
Value params_value(const ModelInfo& model, const Coord& coord, const std::function<bool(const std::string&)>& is_shown) {
  Value::List list;
  for (const ParamInfo& param : model.params)
    list.emplace_back(std::ranges::all_of(param.cut_axes(), is_shown) ? held_param_value(param, coord) : param_value(param));
  return list;
}

const Schema<UnitPlan>& unit_plan_schema() {
  static const auto schema =
      Schema<UnitPlan>("program.units")
          .optional("held", &UnitPlan::held, "whether this rank has the unit")
          .optional("shard_axes", &UnitPlan::shard_axes, "mesh axes over whose ranks the unit is cut into owned parts")
          .optional("sum_axes", &UnitPlan::sum_axes, "mesh axes over which its gradient is summed")
          .optional("state", &UnitPlan::state, "whole or sharded: master parameters and optimizer state")
          .optional("grads", &UnitPlan::grads, "whole or sharded")
          .optional("params", &UnitPlan::params, "whole, sharded or node_shared")
          .optional("slices", &UnitPlan::slices, "into which the owned part is cut", Check<int>(at_least(1)))
          .optional("state_home", &UnitPlan::state_home, "where the optimizer state lies between its uses")
          .optional("grads_home", &UnitPlan::grads_home, "where the owned part of the gradient lies between its uses")
          .optional("params_home", &UnitPlan::params_home, "where the shard of the parameters lies between its uses");
  return schema;
}

Value to_value(const Home& home) {
  return Value::Table{{"tier", word_of(home.tier)}, {"stays", home.stays}};
}

Value to_value(const UnitPlan& plan) {
  return Value::Table{{"held", plan.held},
                      {"shard_axes", to_list(plan.shard_axes)},
                      {"sum_axes", to_list(plan.sum_axes)},
                      {"state", word_of(plan.state)},
                      {"grads", word_of(plan.grads)},
                      {"params", word_of(plan.params)},
                      {"slices", plan.slices},
                      {"state_home", to_value(plan.state_home)},
                      {"grads_home", to_value(plan.grads_home)},
                      {"params_home", to_value(plan.params_home)}};
}

}  // namespace

Value unit_params(const ModelInfo& model, int unit, const Coord& coord) {
  Value::List list;
  for (const int param : model.units.at(unit).params) list.emplace_back(held_param_value(model.params[param], coord));
  return list;
}

Value to_value(const RankProgram& program) {
  Value::List units;
  for (const UnitPlan& plan : program.units) units.push_back(to_value(plan));
  const Precision& types = program.precision;
  return Value::Table{{"actions", to_value(program.actions)},
                      {"mode", word_of(program.mode)},
                      {"micro_batches", program.micro_batches},
                      {"units", units},
                      {"split_axes", to_list(program.split_axes)},
                      {"precision", Value::Table{{"params", float_type_name(types.params)},
                                                 {"grads", float_type_name(types.grads)},
                                                 {"reduce", float_type_name(types.reduce)}}}};
}

RankProgram changed_program(RankProgram program, const Value& value) {
  Value::Table table;
  convert(value, "program", table);
  const auto take = [&](const char* key) {
    const auto node = table.extract(key);
    if (node.empty() || node.mapped().is_nil()) misuse("it returned a program without '{}': return the one that it got", key);
    return node.mapped();
  };
  program.actions = to_actions(take("actions"), "program.actions");
  const Value units = take("units"), precision = take("precision");
  std::vector<Value> plans;
  convert(units, "program.units", plans);
  if (plans.size() != program.units.size())
    misuse("it sets {} unit plans for the {} units of the model: give one per unit", plans.size(), program.units.size());
  for (size_t unit = 0; unit < plans.size(); ++unit)
    program.units[unit] =
        with_context([&] { return fmt::format("unit {}", unit); }, [&] { return unit_plan_schema().parse(plans[unit]); });
  program.precision = parse_precision(precision, "program.precision");
  convert(take("split_axes"), "program.split_axes", program.split_axes);
  const std::map<std::string, Value> fixed{{"mode", word_of(program.mode)}, {"micro_batches", program.micro_batches}};
  for (const auto& [key, given] : table) {
    const auto known = fixed.find(key);
    if (known != fixed.end() && known->second.to_json() == given.to_json()) continue;
    misuse("it sets program.{}, which would have no effect: it may change actions, units, precision and split_axes{}", key,
           key == "micro_batches" ? "; give zt.program(model, {micro_batches = n})" : "");
  }
  return program;
}

namespace {

bool is_shown(const std::optional<std::vector<std::string>>& shown, const std::string& axis) {
  return !shown || std::ranges::find(*shown, axis) != shown->end();
}

}  // namespace

Value coord_value(const Coord& coord, const std::optional<std::vector<std::string>>& shown) {
  Value::Table axes, place;
  for (const AxisSize& axis : coord.shape.axes()) {
    Value::Table values{{"size", axis.size}};
    if (is_shown(shown, axis.name)) values["coordinate"] = coord[axis.name];
    axes[axis.name] = std::move(values);
  }
  if (!shown) place["rank"] = coord.rank;
  place["axes"] = std::move(axes);
  return place;
}

Value to_value(const ModelInfo& model, const Coord& coord, const std::optional<std::vector<std::string>>& shown) {
  return Value::Table{{"positions", positions_value(model)},
                      {"units", units_value(model)},
                      {"params", params_value(model, coord, [&](const std::string& axis) { return is_shown(shown, axis); })},
                      {"coord", coord_value(coord, shown)}};
}

Value result_value(const StepResult& result) {
  Value::Table terms;
  for (const LossTerm& term : result.terms) terms[term.name] = term.value;
  Value::Table table{{"step", result.step},
                     {"loss", result.loss},
                     {"tokens", result.tokens},
                     {"samples", result.samples},
                     {"seconds", result.seconds},
                     {"skipped", result.skipped},
                     {"terms", terms},
                     {"stats", stats_value(result.stats)},
                     {"loss_scale", result.loss_scale}};
  if (result.tokens > 0) table["tokens_per_second"] = static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9);
  if (result.grad_norm) table["grad_norm"] = *result.grad_norm;
  if (result.lr) table["lr"] = *result.lr;
  return table;
}

Action to_action(const Value& value, const std::string& path) {
  Value::Table table;
  convert(value, path, table);
  Action action;
  const auto take = [&](const char* key, auto& out) {
    const auto found = table.find(key);
    if (found == table.end()) return false;
    convert(found->second, path + "." + key, out);
    table.erase(found);
    return true;
  };
  std::string name;
  if (!take("kind", name)) misuse("{} has no 'kind': an action is a table {{kind = \"F\", target = 0, micro_batch = 0}}", path);
  action.kind = kind_id(name);
  take("target", action.target);
  take("micro_batch", action.micro_batch);
  action.attrs = std::move(table);
  return action;
}

std::vector<Action> to_actions(const Value& value, const std::string& path) {
  std::vector<Value> items;
  convert(value, path, items);
  std::vector<Action> actions;
  for (size_t i = 0; i < items.size(); ++i) actions.push_back(to_action(items[i], fmt::format("{}[{}]", path, i + 1)));
  return actions;
}

}  // namespace zt::lua
