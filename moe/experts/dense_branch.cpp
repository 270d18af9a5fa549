#include "experts/dense_branch.h"

#include <ATen/ATen.h>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// A layer with another one inside: parameters, kind and backward are those of the inner layer and some of its own.
class BranchLayer : public Layer {
 public:
  explicit BranchLayer(std::shared_ptr<Layer> branch) : branch_(std::move(branch)) {
    const Io io = branch_->io();
    if (io.inputs.size() != 1 || io.outputs.size() != 1)
      misuse("a branch beside experts takes one value and returns one, but '{}' has {} inputs and {} outputs", branch_->kind(),
             io.inputs.size(), io.outputs.size());
  }
  Params params() const override {
    auto all = branch_->params();
    all.insert(all.end(), own_.begin(), own_.end());
    return all;
  }
  bool splits_backward() const override { return branch_->splits_backward(); }

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
    return {.inputs = std::move(inputs), .outputs = std::move(outputs), .losses = branch_->io().losses};
  }

  std::shared_ptr<Layer> branch_;
  Params own_;
};

class SharedExpert final : public BranchLayer {
 public:
  SharedExpert(std::shared_ptr<Layer> branch, int64_t hidden, bool has_gate) : BranchLayer(std::move(branch)) {
    if (has_gate) own_ = {make_param("gate", {1, hidden}, init_normal(0, 0.02), true, {})};
  }
  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override {
    const at::Tensor out = run_branch(in[0], context);
    return {own_.empty() ? out : out * in[0].matmul(context.param(*own_[0]).t()).sigmoid()};
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
    const at::Tensor mix = at::linear(in[0], context.param(*own_[0]), context.param(*own_[1])).softmax(-1);
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
