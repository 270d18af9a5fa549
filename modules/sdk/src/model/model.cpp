#include "zt/model/model.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/regex.h"
#include "zt/model/layer_extras.h"

namespace zt {

ZT_DEFINE_OBJECT(Model, "Model")

int64_t ParamInfo::numel() const {
  return c10::multiply_integers(shape);
}

int64_t ParamInfo::local_numel(const Coord& coord) const {
  return c10::multiply_integers(local_shape(coord));
}

std::vector<std::string> ParamInfo::cut_axes() const {
  std::vector<std::string> axes;
  for (const AxisPlacement& on : placements) {
    if (on.placement == Placement::sharded && on.parts > 1) axes.push_back(on.axis);
  }
  return axes;
}

// Sets which units and positions have something to train.
void Model::mark_trained(ModelInfo& info) const {
  for (UnitInfo& unit : info.units)
    unit.trainable = std::ranges::any_of(unit.params, [&](int param) { return info.params[param].trainable; });
  for (size_t p = 0; p < positions_.size(); ++p) {
    PositionInfo& position = info.positions[p];
    const auto is_own = [&](const BufferInfo& buffer) { return buffer.layer == position.layer; };
    const bool is_frozen =
        std::ranges::any_of(info.buffers, is_own) &&
        std::ranges::none_of(info.buffers, [&](const auto& buffer) { return is_own(buffer) && buffer.trainable; });
    position.has_update = extras_of(*positions_[p].layer).has_update() && !is_frozen;
  }
}

int Model::set_trainable(const std::string& pattern, bool is_trainable) {
  const Regex wanted(pattern, "the pattern of parameters' names");
  ModelInfo info = *info_;
  int count = 0;
  std::vector<std::string> names;
  const auto mark = [&](auto& named) {
    names.push_back(named.name);
    if (!wanted.is_found_in(named.name)) return;
    named.trainable = is_trainable;
    ++count;
  };
  for (ParamInfo& param : info.params) mark(param);
  for (BufferInfo& buffer : info.buffers) mark(buffer);
  if (count == 0) misuse("no parameter or buffer has a name that contains '{}'{}", pattern, suggest(pattern, names));
  mark_trained(info);
  info_ = std::make_shared<const ModelInfo>(std::move(info));
  return count;
}

std::shared_ptr<const ModelInfo> Model::frozen_info() const {
  ModelInfo info = *info_;
  for (ParamInfo& param : info.params) param.trainable = false;
  for (BufferInfo& buffer : info.buffers) buffer.trainable = false;
  mark_trained(info);
  for (PositionInfo& position : info.positions) position.has_update = false;
  return std::make_shared<const ModelInfo>(std::move(info));
}

std::shared_ptr<Model> Model::append(NamedLayer layer) const {
  std::vector<NamedLayer> layers = positions_;
  const bool is_alike = layer.layer->params().empty();
  layers.push_back(std::move(layer));
  auto model = std::make_shared<Model>(std::move(layers), seed_);
  if (is_alike) model->set_options(options_);
  return model;
}

std::vector<int> readers_of(const ModelInfo& model, int position) {
  std::vector<int> readers;
  for (int reader = 0; reader < static_cast<int>(model.positions.size()); ++reader) {
    if (std::ranges::count(model.positions[static_cast<size_t>(reader)].inputs, position, &Edge::position) > 0)
      readers.push_back(reader);
  }
  return readers;
}

std::string summary(const ModelInfo& model) {
  std::string text;
  int64_t total = 0;
  for (const auto& unit : model.units) {
    int64_t numel = 0;
    for (const int param : unit.params) numel += model.params[param].numel();
    total += numel;
    text += fmt::format("{:<24} {:<12} {:>14} parameters{}\n", unit.name, model.positions[unit.positions.front()].kind, numel,
                        unit.trainable ? "" : ", frozen");
  }
  return text + fmt::format("{}, {}, {}\n", counted(static_cast<int64_t>(model.positions.size()), "position"),
                            counted(static_cast<int64_t>(model.units.size()), "unit"), counted(total, "parameter"));
}

}  // namespace zt
