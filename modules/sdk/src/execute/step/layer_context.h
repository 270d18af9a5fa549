// The Context that the executor gives a layer.
#pragma once

#include "layer_runs.h"
#include "zt/model/layer_extras.h"

namespace zt {

class LayerRuns::LayerContext : public Context, public ContextExtras {
 public:
  LayerContext(LayerRuns& layers, int position, int micro_batch)
      : layers_(layers), position_index_(position), micro_batch_index_(micro_batch) {}

  const at::Tensor& param(const Param& param) override;
  const at::Tensor& buffer(const std::string& name) override;
  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string& name) const override { return fields().contains(name); }
  int64_t first_sample() const override;
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override { return layers_.state_.links->comm({axis}); }
  Communicator& control(const std::string& axis) override { return layers_.state_.links->control({axis}); }
  void loss(const std::string& name, at::Tensor sum, Per per) override;
  void stat(const std::string& name, const at::Tensor& values) override;
  void sent(const std::string& axis, int64_t bytes, Pattern pattern) override;
  void watch(const std::string& name, const at::Tensor& values) override;
  void keep(std::vector<at::Tensor> choices) override;
  std::vector<at::Tensor> kept() const override;
  std::function<Sink()> grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;

 private:
  const Batch& fields() const { return layers_.parts_.batches.fields(micro_batch_index_); }
  Forward& mine() const { return layers_.forward_of(position_index_, micro_batch_index_); }
  Sink sink(int param);

  LayerRuns& layers_;
  int position_index_;
  int micro_batch_index_;
};

}  // namespace zt
