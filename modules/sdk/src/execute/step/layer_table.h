// The layers of a trainer's model: what of each the actions of a step need to know, found once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <vector>

#include "zt/execute/executor.h"
#include "zt/model/model.h"

namespace zt {

// By position of the model. Threads: any.
class LayerTable {
 public:
  // `model`: the layers of `state.model`. The units of `state` must have their buffers. `runs`: see positions_run.
  LayerTable(std::shared_ptr<const Model> model, const StepState& state, std::vector<bool> runs);

  int count() const { return static_cast<int>(info_.positions.size()); }
  const PositionInfo& info(int position) const { return info_.positions[position]; }
  bool runs(int position) const { return runs_[position]; }  // whether this rank runs it
  const Model& model() const { return *model_; }
  Layer& layer(int position) const { return *model_->positions()[position].layer; }
  ExchangeLayer* exchange(int position) const { return exchanges_[position]; }  // null for other layers

  // Returns the index in ModelInfo::params of a parameter that the layer lists. Throws Misuse for any other one.
  int index_of(int position, const Param& param) const;
  const std::vector<int>& trained_params(int position) const { return trained_params_[position]; }  // indices

  at::TensorOptions options() const { return options_; }  // dtype and device of parameters
  // Returns the output of a layer, as a copy if it lies in a buffer of parameters that units share: the value may outlive the
  // residency of the parameters, and would be overwritten.
  at::Tensor outside_parameters(at::Tensor output) const;

 private:
  struct LayerParam {
    const Param* param;
    int index;
  };

  std::shared_ptr<const Model> model_;
  const ModelInfo& info_;
  std::vector<bool> runs_;
  at::TensorOptions options_ = at::TensorOptions().dtype(at::kFloat).device(at::kCPU);
  std::vector<std::vector<LayerParam>> params_;
  std::vector<std::vector<int>> trained_params_;
  std::vector<ExchangeLayer*> exchanges_;
  std::set<const c10::StorageImpl*> shared_storages_;
};

}  // namespace zt
