#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "model_checks.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/gemm/packed_stack.h"
#include "zt/model/layer_extras.h"
#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt {

namespace {

// What the parameters of a unit have in common: kinds of placements by axis, the weight format, and whether they are trained.
using UnitKey = std::tuple<std::map<std::string, Placement>, PackFormat, bool>;

bool is_packed(const Param& param) {
  return param.pack.format != PackFormat::plain;
}

// Returns the kinds of placements by axis, without those that are the default.
std::map<std::string, Placement> kinds_of(const std::vector<AxisPlacement>& placements) {
  std::map<std::string, Placement> kinds;
  for (const AxisPlacement& on : placements) {
    if (on.placement != placement_on({}, on.axis)) kinds[on.axis] = on.placement;
  }
  return kinds;
}

// Fills a ModelInfo position by position, except what depends on which buffers are trained. Gives further uses of a layer the
// name of the first, and each Param its full name. Distinct layers and parameters are told apart by address.
class ModelBuilder {
 public:
  // `trained`: by index into ModelInfo::params; empty: as Param::trainable says.
  ModelBuilder(std::vector<NamedLayer>& layers, const std::vector<bool>& trained) : layers_(layers), trained_(trained) {
    std::set<const Layer*> seen;
    for (const NamedLayer& entry : layers) {
      if (!entry.layer || !seen.insert(entry.layer.get()).second) continue;
      for (const auto& param : entry.layer->params()) ++holders_[param.get()];
      add_axes(entry);
    }
    if (model.tokens) check_beside_cut(layers, *model.tokens, cutter_);
  }

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
    info.exchanges = !info.axes.empty() && dynamic_cast<const ExchangeLayer*>(entry.layer.get()) != nullptr;
    info.tokens = entry.layer->token_scope();
    check_exchange(info, model);
    const Io io = entry.layer->io();
    for (const auto& input : io.inputs) info.inputs.push_back(resolve(input, info));
    check_cuts(io, info, model.positions);
    check_sources(*entry.layer, info);
    info.outputs = io.outputs;
    add_outputs(io.outputs, position, info.name);
    info.losses = io.losses;
    add_losses(info);
    info.stats = io.stats;
    info.continues = entry.continues && position > 0;
    info.batch_axes = extras_of(*entry.layer).batch_axes();
    if (is_new) add_stats(info);
    info.units = record_use(*entry.layer, position);
    model.positions.push_back(std::move(info));
  }

  ModelInfo model;
  Params params;  // in the order of model.params

 private:
  void add_axes(const NamedLayer& entry) {
    const LayerExtras& extras = extras_of(*entry.layer);
    const auto add = [&](const std::string& axis) {
      if (!model.is_inner(axis)) model.inner_axes.push_back(axis);
    };
    for (const std::string& axis : extras.tensor_axes()) add(axis);
    const auto cut = extras.token_cut();
    if (!cut) return;
    if (model.tokens && *model.tokens != *cut)
      misuse(
          "the layers '{}' and '{}' cut the tokens of samples differently ({}, and {}): all layers of a model need the same axis, "
          "layout and fields",
          cutter_, entry.name, model.tokens->text(), cut->text());
    if (!model.tokens) cutter_ = entry.name;
    model.tokens = cut;
    add(cut->axis);
  }

  // Returns the placements of a parameter with those on inner axes that it does not state.
  std::vector<AxisPlacement> completed(std::vector<AxisPlacement> placements) const {
    for (const std::string& axis : model.inner_axes) {
      if (std::ranges::find(placements, axis, &AxisPlacement::axis) != placements.end()) continue;
      const bool sees_other = model.tokens && model.tokens->axis == axis;
      placements.push_back({axis, sees_other ? Placement::replicated_other_data : Placement::replicated_same_data});
    }
    return placements;
  }

  void add_layer(int position) {
    const NamedLayer& entry = layers_[position];
    if (entry.name.empty()) misuse("the {} layer at position {} has no name: give it one", entry.layer->kind(), position);
    if (std::find(names_.begin(), names_.end(), entry.name) != names_.end()) {
      misuse("two layers are named '{}', the second at position {}: parameters would share names, rename one", entry.name,
             position);
    }
    layer_index_[entry.layer.get()] = static_cast<int>(names_.size());
    names_.push_back(entry.name);
    add_units(entry);
    for (const LayerBuffer& buffer : extras_of(*entry.layer).buffers()) add_buffer(entry, buffer);
  }

  void add_buffer(const NamedLayer& entry, const LayerBuffer& buffer) {
    const at::Tensor& initial = buffer.initial;
    const bool is_kept =
        initial.defined() && initial.is_cpu() && (initial.scalar_type() == at::kFloat || initial.scalar_type() == at::kDouble);
    if (!is_kept) {
      misuse("the buffer '{}' of the layer '{}' must begin as a float32 or float64 tensor in host memory, got {}", buffer.name,
             entry.name, describe(initial));
    }
    model.buffers.push_back({entry.name + "." + buffer.name, layer_index_.at(entry.layer.get()), buffer.name, initial});
  }

  // Adds units for the parameters of the layer that no earlier layer holds. Tied parameters have a unit each, and the others one
  // per key.
  void add_units(const NamedLayer& entry) {
    const size_t first = model.units.size();
    std::map<UnitKey, int> by_key;
    for (const auto& param : entry.layer->params()) {
      if (!param) misuse("the layer '{}' lists a parameter that is nil", entry.name);
      if (param_index_.contains(param.get())) continue;
      name_param(*param, entry.name);
      check_placements(*param);
      const bool is_tied = holders_.at(param.get()) > 1;
      const bool is_trained = trained_.empty() ? param->trainable : trained_.at(params.size());
      const UnitKey key{kinds_of(completed(param->placements)), param->pack.format, is_trained};
      const auto known = by_key.find(key);
      if (!is_tied && known != by_key.end()) {
        add_param(param, known->second);
        continue;
      }
      const int unit = static_cast<int>(model.units.size());
      model.units.push_back(
          {.name = param->name, .params = {}, .positions = {}, .trainable = is_trained, .is_packed = is_packed(*param)});
      if (!is_tied) {
        if (by_key.empty()) model.units.back().name = entry.name;
        by_key[key] = unit;
      }
      add_param(param, unit);
    }
    if (model.units.size() == first + 1) model.units.back().name = entry.name;
  }

  void add_param(const std::shared_ptr<Param>& param, int index) {
    UnitInfo& unit = model.units[index];
    const int64_t align = unit.is_packed ? kPackAlign : FlatLayout::kParamAlign;
    const int64_t room = flat_numel_of(param->shape, param->placements, param->pack, {});
    const int64_t offset = (unit.numel + align - 1) / align * align;
    unit.params.push_back(static_cast<int>(params.size()));
    unit.numel = offset + room;
    param_index_[param.get()] = static_cast<int>(params.size());
    params.push_back(param);
    model.params.push_back({param->name,
                            param->shape,
                            room,
                            index,
                            offset,
                            unit.trainable,
                            param->is_matrix,
                            {},
                            completed(param->placements),
                            param->dims,
                            param->pack});
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
    misuse("'{}' ({}) reads '{}', which no earlier layer outputs{}", reader.name, reader.kind, input,
           suggest(input, names_of(latest_, &decltype(latest_)::value_type::first)));
  }

  void check_sources(const Layer& layer, const PositionInfo& reader) const {
    std::vector<const Layer*> sources;
    for (const Edge& edge : reader.inputs) sources.push_back(layers_[edge.position].layer.get());
    with_context([&] { return fmt::format("'{}' ({})", reader.name, reader.kind); },
                 [&] { extras_of(layer).check_sources(sources); });
  }

  void add_outputs(const std::vector<Output>& outputs, int position, const std::string& layer) {
    std::set<std::string> seen;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!seen.insert(outputs[i].name).second) misuse("the layer '{}' has two outputs named '{}'", layer, outputs[i].name);
      latest_[outputs[i].name] = {position, static_cast<int>(i)};
    }
  }

  void add_losses(const PositionInfo& position) {
    for (const LossInfo& loss : position.losses) {
      if (model.tokens && loss.per == Per::sample && !loss.adds_over_tokens)
        misuse(
            "the loss '{}' of the layer '{}' is per sample, and no rank has a whole sample, because the layer '{}' cuts tokens along "
            "'{}': if that of a sample is the sum over its tokens, say so by adds_over_tokens = true; if each rank computes it from all "
            "tokens, divide it by the ranks of the axis as well",
            loss.name, position.name, cutter_, model.tokens->axis);
      const auto place = std::ranges::lower_bound(model.losses, loss.name, {}, &LossInfo::name);
      if (place == model.losses.end() || place->name != loss.name) {
        model.losses.insert(place, loss);
      } else if (place->per != loss.per) {
        misuse("the loss '{}' is summed per {} in the layer '{}', and per {} in a layer before it: give it another name",
               loss.name, word_of(loss.per), position.name, word_of(place->per));
      }
    }
  }

  void add_stats(const PositionInfo& position) {
    std::set<std::string> seen;
    for (const StatInfo& stat : position.stats) {
      if (stat.size < 1)
        misuse("the statistic '{}' of layer '{}' has {} numbers: give at least 1", stat.name, position.name, stat.size);
      if (!seen.insert(stat.name).second) misuse("the layer '{}' has two statistics named '{}'", position.name, stat.name);
      model.stats.push_back({position.name + "." + stat.name, stat.size, position.layer});
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
  const std::vector<bool>& trained_;
  std::vector<std::string> names_;  // of distinct layers
  std::map<const Layer*, int> layer_index_;
  std::map<const Param*, int> param_index_;
  std::map<const Param*, int> holders_;  // number of distinct layers that hold it
  std::set<std::string> param_names_;
  std::string cutter_;                  // the first layer that cuts tokens
  std::map<std::string, Edge> latest_;  // the latest output of each name
};

}  // namespace

Model::Model(std::vector<NamedLayer> layers, uint64_t seed) : positions_(std::move(layers)), seed_(seed) {
  ModelInfo info = describe({});
  mark_updates(info);
  info_ = std::make_shared<const ModelInfo>(std::move(info));
}

// Returns the description of the layers, without what follows from which buffers are trained. `trained`: by parameter; empty:
// those that are trainable at first. Sets the parameters.
ModelInfo Model::describe(const std::vector<bool>& trained) {
  ModelBuilder builder(positions_, trained);
  for (size_t i = 0; i < positions_.size(); ++i) builder.add(static_cast<int>(i));
  params_ = std::move(builder.params);
  return std::move(builder.model);
}

}  // namespace zt
