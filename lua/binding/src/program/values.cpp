#include "program/values.h"

#include <algorithm>

#include "zt/base/options.h"

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

Value params_value(const ModelInfo& model) {
  Value::List list;
  for (const ParamInfo& param : model.params) {
    list.push_back(Value::Table{{"name", param.name},
                                {"shape", to_list(param.shape)},
                                {"logical_shape", to_list(param.logical_shape())},
                                {"offset", param.offset},
                                {"unit", param.unit},
                                {"positions", to_list(param.positions)},
                                {"trainable", param.trainable}});
  }
  return list;
}

}  // namespace

Value to_value(const ModelInfo& model, const Coord& coord, const std::optional<std::vector<std::string>>& shown) {
  Value::Table axes, place;
  for (const AxisSize& axis : coord.shape.axes()) {
    Value::Table values{{"size", axis.size}};
    if (!shown || std::ranges::find(*shown, axis.name) != shown->end()) values["coordinate"] = coord[axis.name];
    axes[axis.name] = std::move(values);
  }
  if (!shown) place["rank"] = coord.rank;
  place["axes"] = std::move(axes);
  return Value::Table{{"positions", positions_value(model)},
                      {"units", units_value(model)},
                      {"params", params_value(model)},
                      {"coord", std::move(place)}};
}

Value result_value(const StepResult& result) {
  Value::Table terms;
  for (const LossTerm& term : result.terms) terms[term.name] = term.value;
  Value::Table table{{"step", result.step},
                     {"loss", result.loss},
                     {"tokens", result.tokens},
                     {"samples", result.samples},
                     {"seconds", result.seconds},
                     {"tokens_per_second", static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9)},
                     {"skipped", result.skipped},
                     {"terms", terms},
                     {"stats", stats_value(result.stats)},
                     {"loss_scale", result.loss_scale}};
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
