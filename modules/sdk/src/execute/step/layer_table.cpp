#include "layer_table.h"

#include <algorithm>
#include <unordered_map>

#include "zt/base/error.h"

namespace zt {

LayerTable::LayerTable(std::shared_ptr<const Model> model, const StepState& state, std::vector<bool> runs)
    : model_(std::move(model)), info_(*state.model), runs_(std::move(runs)) {
  if (state.links) options_ = options_.device(state.links->device());
  for (const Unit& unit : state.units) {
    if (!unit.plan.held) continue;
    options_ = at::TensorOptions().dtype(unit.full.scalar_type()).device(unit.full.device());
    if (unit.owns_shard()) shared_storages_.insert(unit.full.storage().unsafeGetStorageImpl());
  }
  std::unordered_map<const Param*, int> indices;
  for (size_t i = 0; i < model_->params().size(); ++i) indices[model_->params()[i].get()] = static_cast<int>(i);
  for (int position = 0; position < count(); ++position) {
    exchanges_.push_back(dynamic_cast<ExchangeLayer*>(&layer(position)));
    auto& params = params_.emplace_back();
    auto& trained = trained_params_.emplace_back();
    for (const auto& param : layer(position).params()) {
      const int index = indices.at(param.get());
      params.push_back({param.get(), index});
      if (info_.params[index].trainable) trained.push_back(index);
    }
  }
}

int LayerTable::index_of(int position, const Param& param) const {
  const std::vector<LayerParam>& known = params_[position];
  const auto found = std::ranges::find(known, &param, &LayerParam::param);
  if (found != known.end()) return found->index;
  misuse("layer '{}' uses the parameter '{}', which its params() does not list: add it there", info(position).name, param.name);
}

at::Tensor LayerTable::outside_parameters(at::Tensor output) const {
  const bool is_shared =
      output.defined() && output.has_storage() && shared_storages_.contains(output.storage().unsafeGetStorageImpl());
  return is_shared ? output.clone() : output;
}

}  // namespace zt
