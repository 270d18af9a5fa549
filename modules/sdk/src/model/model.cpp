#include "zt/model/model.h"

#include <algorithm>
#include <set>

#include "zt/base/error.h"
#include "zt/base/regex.h"
#include "zt/model/unit.h"

namespace zt {

ZT_DEFINE_OBJECT(Model, "Model")

namespace {

// Fills a ModelInfo position by position. Distinct layers and parameters are told apart by address.
class ModelBuilder {
 public:
  explicit ModelBuilder(std::vector<NamedLayer>& layers) : layers_(layers) {}

  void add(int position) {
    NamedLayer& entry = layers_[position];
    if (!entry.layer) misuse("position {} of the model holds no layer", position);
    const bool is_new = !layer_index_.contains(entry.layer.get());
    if (is_new) add_layer(position);
    entry.name = names_[layer_index_.at(entry.layer.get())];

    PositionInfo info;
    info.name = entry.name;
    info.kind = entry.layer->kind();
    info.layer = layer_index_.at(entry.layer.get());
    info.axes = entry.layer->axes();
    info.splits_backward = entry.layer->splits_backward();
    const Io io = entry.layer->io();
    for (const auto& input : io.inputs) info.inputs.push_back(resolve(input, info));
    info.outputs = io.outputs;
    add_outputs(io.outputs, position, info.name);
    info.units = record_use(*entry.layer, position);
    model.positions.push_back(std::move(info));
  }

  ModelInfo model;
  std::vector<std::shared_ptr<Param>> params;

 private:
  void add_layer(int position) {
    const NamedLayer& entry = layers_[position];
    if (entry.name.empty()) misuse("the {} layer at position {} has no name: give it one", entry.layer->kind(), position);
    if (std::find(names_.begin(), names_.end(), entry.name) != names_.end()) {
      misuse("two layers are named '{}', the second at position {}: parameters would share names, rename one", entry.name,
             position);
    }
    layer_index_[entry.layer.get()] = static_cast<int>(names_.size());
    names_.push_back(entry.name);
    add_unit(entry);
  }

  // Adds a unit for the parameters of the layer that no earlier layer holds, if there are any.
  void add_unit(const NamedLayer& entry) {
    UnitInfo unit;
    unit.name = entry.name;
    unit.trainable = false;
    const int index = static_cast<int>(model.units.size());
    for (const auto& param : entry.layer->params()) {
      if (!param) misuse("the layer '{}' lists a parameter that is nil", entry.name);
      if (param_index_.contains(param.get())) continue;
      name_param(*param, entry.name);
      const int64_t align = FlatLayout::kParamAlign;
      const int64_t offset = (unit.numel + align - 1) / align * align;
      unit.params.push_back(static_cast<int>(params.size()));
      unit.numel = offset + param->numel();
      unit.trainable = unit.trainable || param->trainable;
      param_index_[param.get()] = static_cast<int>(params.size());
      params.push_back(param);
      model.params.push_back({param->name,
                              param->shape,
                              param->numel(),
                              index,
                              offset,
                              param->trainable,
                              param->is_matrix,
                              {},
                              param->placements,
                              param->dims});
    }
    if (!unit.params.empty()) model.units.push_back(std::move(unit));
  }

  // Sets the full name. It is always made from the local one, so several models can use a layer.
  void name_param(Param& param, const std::string& layer) {
    if (param.local_name.empty()) param.local_name = param.name;
    if (param.local_name.empty()) misuse("the layer '{}' has a parameter without a name", layer);
    param.name = layer + "." + param.local_name;
    if (!param_names_.insert(param.name).second) misuse("two parameters are named '{}': rename one of the layers", param.name);
  }

  Edge resolve(const std::string& input, const PositionInfo& reader) const {
    const auto found = latest_.find(input);
    if (found != latest_.end()) return found->second;
    if (latest_.empty()) {
      misuse(
          "'{}' ({}) reads '{}', but no layer before it has an output: start the model with a layer that makes one, "
          "such as nn.embedding",
          reader.name, reader.kind, input);
    }
    std::vector<std::string> known;
    for (const auto& [name, edge] : latest_) known.push_back(name);
    misuse("'{}' ({}) reads '{}', which no earlier layer outputs{}", reader.name, reader.kind, input, suggest(input, known));
  }

  void add_outputs(const std::vector<Output>& outputs, int position, const std::string& layer) {
    std::set<std::string> seen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!seen.insert(outputs[i].name).second) misuse("the layer '{}' has two outputs named '{}'", layer, outputs[i].name);
      latest_[outputs[i].name] = {position, static_cast<int>(i)};
    }
  }

  // Records that `position` uses the layer's parameters. Returns their units.
  std::vector<int> record_use(const Layer& layer, int position) {
    std::set<int> units, uses;
    for (const auto& param : layer.params()) uses.insert(param_index_.at(param.get()));
    for (const int use : uses) {
      model.params[use].positions.push_back(position);
      units.insert(model.params[use].unit);
    }
    for (const int unit : units) model.units[unit].positions.push_back(position);
    return {units.begin(), units.end()};
  }

  std::vector<NamedLayer>& layers_;
  std::vector<std::string> names_;  // of distinct layers
  std::map<const Layer*, int> layer_index_;
  std::map<const Param*, int> param_index_;
  std::set<std::string> param_names_;
  std::map<std::string, Edge> latest_;  // the latest output of each name
};

}  // namespace

Model::Model(std::vector<NamedLayer> layers, uint64_t seed) : positions_(std::move(layers)), seed_(seed) {
  ModelBuilder builder(positions_);
  for (size_t i = 0; i < positions_.size(); ++i) builder.add(static_cast<int>(i));
  info_ = std::move(builder.model);
  params_ = std::move(builder.params);
}

int Model::set_trainable(const std::string& pattern, bool is_trainable) {
  const Regex wanted(pattern, "the pattern of parameters' names");
  int count = 0;
  std::vector<std::string> names;
  for (size_t i = 0; i < params_.size(); ++i) {
    names.push_back(info_.params[i].name);
    if (params_[i]->values.defined()) misuse("a trainer holds the model: freeze parameters before you make the trainer");
    if (!wanted.is_found_in(names.back())) continue;
    info_.params[i].trainable = is_trainable;
    ++count;
  }
  if (count == 0) misuse("no parameter's name contains '{}'{}", pattern, suggest(pattern, names));
  for (UnitInfo& unit : info_.units)
    unit.trainable =
        std::any_of(unit.params.begin(), unit.params.end(), [&](int param) { return info_.params[param].trainable; });
  return count;
}

std::shared_ptr<Model> Model::append(NamedLayer layer) const {
  std::vector<NamedLayer> layers = positions_;
  layers.push_back(std::move(layer));
  return std::make_shared<Model>(std::move(layers), seed_);
}

std::string Model::summary() const {
  std::string text;
  int64_t total = 0;
  for (const auto& unit : info_.units) {
    int64_t numel = 0;
    for (const int param : unit.params) numel += info_.params[param].numel;
    total += numel;
    text += fmt::format("{:<24} {:<12} {:>14} parameters{}\n", unit.name, info_.positions[unit.positions.front()].kind, numel,
                        unit.trainable ? "" : ", frozen");
  }
  return text + fmt::format("{} positions, {} units, {} parameters\n", info_.positions.size(), info_.units.size(), total);
}

}  // namespace zt
