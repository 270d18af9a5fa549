#include "experts/dense_branch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "routing/sigmoid.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/model/layer_extras.h"

namespace zt::moe {

namespace {

// Throws Misuse unless the layer can run inside of another one that gives it all tokens and its own Context.
void check_branch(const Layer& branch) {
  const Io io = branch.io();
  if (io.inputs.size() != 1 || io.outputs.size() != 1)
    misuse("a branch beside experts takes one value and returns one, but '{}' has {} inputs and {} outputs", branch.kind(),
           io.inputs.size(), io.outputs.size());
  if (dynamic_cast<const ExchangeLayer*>(&branch))
    misuse("a branch beside experts computes one value, but '{}' sends rows to other ranks: put it beside the mixture",
           branch.kind());
  if (!io.outputs[0].cut_over.empty() || std::ranges::any_of(io.cut_inputs, [](const auto& in) { return !in.second.empty(); }))
    misuse(
        "a branch beside experts gets all tokens, but with sequence_parallel '{}' takes or returns some: leave sequence_parallel out "
        "of it, and keep `tensor`",
        branch.kind());
}

// A layer with another one inside, and some parameters of its own. The inner layer runs with the outer one's Context, so all that
// it states of itself holds for the outer one.
class BranchLayer : public Layer, public LayerExtras {
 public:
  explicit BranchLayer(std::shared_ptr<Layer> branch) : branch_(std::move(branch)) { check_branch(*branch_); }
  Params params() const override {
    auto all = branch_->params();
    all.insert(all.end(), own_.begin(), own_.end());
    return all;
  }
  std::vector<std::string> axes() const override { return branch_->axes(); }
  Counts count(const BatchField& batch) const override { return branch_->count(batch); }
  std::vector<LayerBuffer> buffers() const override { return inner().buffers(); }
  bool has_update() const override { return inner().has_update(); }
  void update(const Stats& stats, const LayerBuffers& buffers) override { extras_of(*branch_).update(stats, buffers); }
  Stats report(const Stats& sums) const override { return inner().report(sums); }
  std::vector<std::string> tensor_axes() const override { return inner().tensor_axes(); }
  std::optional<TokenCut> token_cut() const override { return inner().token_cut(); }
  bool needs_whole_samples() const override { return inner().needs_whole_samples(); }
  std::vector<std::string> batch_axes() const override { return inner().batch_axes(); }
  void check_batch(const BatchField& batch, Mode mode) const override { inner().check_batch(batch, mode); }
  void check_sources(const std::vector<const Layer*>& sources) const override { inner().check_sources({sources[0]}); }
  TokenScope token_scope() const override { return branch_->token_scope(); }
  std::optional<KvShape> kv_shape(const Coord& coord) const override { return branch_->kv_shape(coord); }
  std::string assumption() const override { return inner().assumption(); }
  std::vector<std::string> gives_up() const override { return inner().gives_up(); }

 protected:
  // Returns what the branch makes of h. Throws Misuse unless it has the shape and dtype of h, as what is added to it must.
  at::Tensor run_branch(const at::Tensor& h, Context& context) const {
    const std::vector<at::Tensor> outputs = branch_->forward({h}, context);
    if (outputs.size() != 1 || outputs[0].sizes() != h.sizes() || outputs[0].scalar_type() != h.scalar_type()) {
      misuse("a branch beside experts returns one value like its own, {}, but '{}' returned {}", describe(h), branch_->kind(),
             outputs.size() == 1 ? describe(outputs[0]) : fmt::format("{} values", outputs.size()));
    }
    return outputs[0];
  }
  Io io_of_branch(std::vector<std::string> inputs, std::vector<Output> outputs) const {
    const Io of_branch = branch_->io();
    return {.inputs = std::move(inputs), .outputs = std::move(outputs), .losses = of_branch.losses, .stats = of_branch.stats};
  }

  std::shared_ptr<Layer> branch_;
  Params own_;

 private:
  const LayerExtras& inner() const { return extras_of(*std::as_const(branch_)); }
};

class SharedExpert final : public BranchLayer {
 public:
  SharedExpert(std::shared_ptr<Layer> branch, int64_t hidden, bool has_gate) : BranchLayer(std::move(branch)) {
    if (has_gate) own_ = {make_param("gate", {1, hidden}, init_normal(0, 0.02), true, {})};
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor out = run_branch(in[0], context);
    return {own_.empty() ? out : out * sigmoid_by_element(linear_by_scope(in[0], context.param(*own_[0])))};
  }
  Io io() const override { return io_of_branch({"h"}, {{"shared"}}); }
  std::string kind() const override { return "shared expert"; }
};

class ResidualBranch final : public BranchLayer {
 public:
  ResidualBranch(std::shared_ptr<Layer> branch, int64_t hidden) : BranchLayer(std::move(branch)) {
    own_ = {make_param("mix.weight", {2, hidden}, init_normal(0, 0.02), true, {}),
            make_param("mix.bias", {2}, init_zeros(), false, {})};
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor mix = linear_by_scope(in[0], context.param(*own_[0]), context.param(*own_[1])).softmax(-1);
    const at::Tensor of_experts = mix.narrow(-1, 0, 1), of_branch = mix.narrow(-1, 1, 1);
    return {in[1] * of_experts.to(in[1].scalar_type()), run_branch(in[0], context) * of_branch};
  }
  Io io() const override { return io_of_branch({"h", "route_weights"}, {{"route_weights"}, {"shared"}}); }
  std::string kind() const override { return "residual branch"; }
};

}  // namespace

std::shared_ptr<Layer> make_shared_expert(std::shared_ptr<Layer> branch, int64_t hidden, bool has_gate) {
  return std::make_shared<SharedExpert>(std::move(branch), hidden, has_gate);
}

std::shared_ptr<Layer> make_residual_branch(std::shared_ptr<Layer> branch, int64_t hidden) {
  return std::make_shared<ResidualBranch>(std::move(branch), hidden);
}

}  // namespace zt::moe
