// The Context of a layer that runs as one of several experts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/layer.h"

namespace zt::moe {

using Params = std::vector<std::shared_ptr<Param>>;

// Gives an expert its slices of the gradient buffers of all experts. What an expert cannot have, such as a batch, throws Misuse.
//
// Lives from the forward of a micro-batch to the end of its backward. Threads: the rank's thread only.
class ExpertContext final : public Context {
 public:
  // `of_expert`: the parameters of one expert; `stacked`: those of all experts of this rank, in the same order.
  ExpertContext(Context& outer, const Params& of_expert, const Params& stacked);

  // The calls that follow are for this expert. `run_as` runs each of its deferred computations.
  void select(int64_t expert, std::function<void(const std::function<void()>&)> run_as);
  // Adds the gradient of a parameter of the selected expert, given by its index: at once, or in the action W.
  void add_gradient(size_t param, const at::Tensor& gradient);
  // Call after the backwards of all experts: the gradients of experts without rows become zero.
  void finish(const std::shared_ptr<ExpertContext>& self);

  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string&) const override { return false; }
  int64_t first_sample() const override;
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override;
  void loss(const std::string& name, at::Tensor sum, Per per) override;
  std::function<Sink()> grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;

 private:
  struct Stack {
    const Param* of_expert;
    std::function<Sink()> open;
    std::optional<Sink> sink;   // of all experts; opened at the first use
    std::vector<bool> has_sum;  // by expert
  };
  Sink sink(Stack& stack, int64_t expert) const;

  Context& outer_;
  std::vector<Stack> stacks_;
  int64_t expert_ = 0;
  std::function<void(const std::function<void()>&)> run_as_;
};

}  // namespace zt::moe
