// The Context that the executor gives a layer.
#pragma once

#include "execute/step/step_parts.h"
#include "zt/model/layer_extras.h"

namespace zt {

class LayerContext : public Context, public ContextExtras {
 public:
  // Makes the context of a forward, or of its recompute, and keeps it in the Forward.
  static Context& begin(StepParts& parts, int position, int micro_batch, bool is_recompute);
  LayerContext(StepParts& parts, int position, int micro_batch, bool is_recompute);

  const at::Tensor& param(const Param& param) override;
  const at::Tensor& buffer(const std::string& name) override;
  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string& name) const override { return fields().contains(name); }
  int64_t first_sample() const override { return parts_.batches.first_sample(micro_batch); }
  const TokenPlaces& tokens() override;
  KvCache* kv_cache() override { return parts_.state.kv_cache; }
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override { return parts_.state.links->comm({axis}); }
  Communicator& control(const std::string& axis) override { return parts_.state.links->control({axis}); }
  int rank_along(const std::string& axis) override { return is_whole_along(axis) ? 0 : parts_.state.links->place().coord[axis]; }
  int ranks_along(const std::string& axis) override { return is_whole_along(axis) ? 1 : comm(axis).size(); }
  void loss(const std::string& name, at::Tensor sum, Per per) override;
  void stat(const std::string& name, const at::Tensor& values) override;
  void sent(const std::string& axis, int64_t bytes, Pattern pattern) override;
  void watch(const std::string& name, const at::Tensor& values) override;
  void keep(std::vector<at::Tensor> choices) override;
  std::vector<at::Tensor> kept() const override;
  std::function<Sink()> grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;

 private:
  const Batch& fields() const { return parts_.batches.fields(micro_batch); }
  // Whether the ranks along the axis have all tokens of the same samples, although a layer cuts them in other modes.
  bool is_whole_along(const std::string& axis) const;
  Forward& mine() const { return parts_.forwards.at(position, micro_batch); }
  Sink sink(int param);
  const at::Tensor& leaf(const std::string& name, const at::Tensor& field);

  StepParts& parts_;
};

}  // namespace zt
