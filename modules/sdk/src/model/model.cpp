#include "zt/model/model.h"

#include <c10/util/accumulate.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/regex.h"
#include "zt/base/words.h"
#include "zt/model/layer_extras.h"

namespace zt {

ZT_DEFINE_OBJECT(Model, "Model")

int64_t ParamInfo::numel() const {
  return c10::multiply_integers(shape);
}

int64_t ParamInfo::local_numel(const Coord& coord) const {
  return c10::multiply_integers(local_shape(coord));
}

int64_t ParamInfo::flat_numel(const Coord& coord) const {
  return flat_numel_of(shape, placements, pack, coord);
}

std::vector<std::string> ParamInfo::cut_axes() const {
  std::vector<std::string> axes;
  for (const AxisPlacement& on : placements) {
    if (on.placement == Placement::sharded && on.parts > 1) axes.push_back(on.axis);
  }
  return axes;
}

// Sets which positions have buffers to change.
void Model::mark_updates(ModelInfo& info) const {
  for (size_t p = 0; p < positions_.size(); ++p) {
    PositionInfo& position = info.positions[p];
    const auto is_own = [&](const BufferInfo& buffer) { return buffer.layer == position.layer; };
    const bool is_frozen =
        std::ranges::any_of(info.buffers, is_own) &&
        std::ranges::none_of(info.buffers, [&](const auto& buffer) { return is_own(buffer) && buffer.trainable; });
    position.has_update = extras_of(*positions_[p].layer).has_update() && !is_frozen;
  }
}

// Replaces the description by one in which those parameters and buffers are trained that are trainable in `wanted`.
void Model::describe_again(const ModelInfo& wanted) {
  std::vector<bool> trained;
  for (const ParamInfo& param : wanted.params) trained.push_back(param.trainable);
  ModelInfo info = describe(trained);
  for (size_t i = 0; i < info.buffers.size(); ++i) info.buffers[i].trainable = wanted.buffers[i].trainable;
  mark_updates(info);
  info_ = std::make_shared<const ModelInfo>(std::move(info));
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
  for (ParamInfo& param : info.params) {
    if (is_trainable && param.is_packed() && wanted.is_found_in(param.name))
      misuse("parameter '{}' is packed as {}, so it cannot be trained", param.name, word_of(param.pack.format));
    mark(param);
  }
  for (BufferInfo& buffer : info.buffers) mark(buffer);
  if (count == 0) misuse("no parameter or buffer has a name that contains '{}'{}", pattern, suggest(pattern, names));
  describe_again(info);
  return count;
}

namespace {

// Throws Misuse unless the columns of a matrix, and those of each rank's part, are whole groups. Also for a stack of matrices.
void check_groups(const Param& param, const PackSpec& spec) {
  const int64_t columns = param.shape.back();
  const auto advice = [&] {
    const bool is_nf4 = spec.format == PackFormat::nf4;
    return fmt::format("{}, or name '{}' in keep", is_nf4 ? "take int4 with a group of 32" : "give a smaller group", param.name);
  };
  if (spec.format == PackFormat::panels) return;
  if (columns % spec.group != 0)
    misuse("'{}' has {} columns, no multiple of the group of {}: {}", param.name, columns, spec.group, advice());
  for (const AxisPlacement& on : param.placements) {
    if (on.placement != Placement::sharded || on.dim + 1 != static_cast<int>(param.shape.size())) continue;
    for (int part = 0; part < on.parts; ++part) {
      int64_t first = 0;
      for (const CutGroup& group : on.groups.empty() ? std::vector<CutGroup>{{columns, 1}} : on.groups) {
        const Share units = share_of(group.size / group.unit, on.parts, part);
        if ((first + units.begin * group.unit) % spec.group != 0 || units.count * group.unit % spec.group != 0)
          misuse("'{}': {} columns cut in {} along '{}' are parts of {}, no multiple of the group of {}: {}", param.name, columns,
                 on.parts, on.axis, units.count * group.unit, spec.group, advice());
        first += group.size;
      }
    }
  }
}

}  // namespace

std::vector<std::string> Model::pack(const PackSpec& spec, const std::vector<std::string>& keep) {
  if (spec.format == PackFormat::plain) misuse("model:pack: a format is needed: panels, int8, int4 or nf4");
  if (spec.activations == Activations::int8 && spec.format != PackFormat::int8 && spec.format != PackFormat::int4)
    misuse("model:pack: activations of 8 bits are multiplied by int8 and int4 only, not by {}", word_of(spec.format));
  check_pack_spec(spec);
  std::vector<Regex> kept;
  for (const std::string& pattern : keep) {
    kept.emplace_back(pattern, "the pattern of parameters that stay plain");
    if (std::ranges::none_of(params_, [&](const auto& param) { return kept.back().is_found_in(param->name); }))
      misuse("no parameter has a name that contains '{}'", pattern);
  }
  std::vector<std::pair<Param*, PackSpec>> chosen;
  for (const auto& param : params_) {
    const bool is_kept = std::ranges::any_of(kept, [&](const Regex& pattern) { return pattern.is_found_in(param->name); });
    if (is_kept || param->packing == Packing::none) continue;
    PackSpec of_param = spec;
    const bool has_4_bits = spec.format == PackFormat::int4 || spec.format == PackFormat::nf4;
    if (has_4_bits && param->packing == Packing::up_to_int8) {
      of_param.format = PackFormat::int8;
      of_param.nested = true;
    }
    check_groups(*param, of_param);
    chosen.emplace_back(param.get(), of_param);
  }
  if (chosen.empty())
    misuse("the model has no matrix that may be packed: layers such as nn.linear, nn.mlp and attention have some");
  for (const auto& [param, of_param] : chosen) param->pack = of_param;
  ModelInfo wanted = *info_;
  for (size_t i = 0; i < params_.size(); ++i) wanted.params[i].trainable &= params_[i]->pack.format == PackFormat::plain;
  describe_again(wanted);
  std::vector<std::string> names;
  for (const auto& [param, of_param] : chosen) names.push_back(param->name);
  return names;
}

std::shared_ptr<const ModelInfo> Model::frozen_info() const {
  ModelInfo info = *info_;
  for (ParamInfo& param : info.params) param.trainable = false;
  for (UnitInfo& unit : info.units) unit.trainable = false;
  for (BufferInfo& buffer : info.buffers) buffer.trainable = false;
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
