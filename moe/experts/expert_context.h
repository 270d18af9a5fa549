// The Context of a layer that runs as one of several experts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/layer.h"

namespace zt::moe {

// Gives an expert its slices of the parameters and gradient buffers of all experts. What an expert cannot have, such as a batch,
// throws Misuse.
//
// Lives from the forward of a micro-batch to the end of its backward. Threads: the rank's thread only.
class ExpertContext final : public Context {
 public:
  // `of_expert`: the parameters of one expert; `stacked`: those of all experts of the model, in the same order.
  ExpertContext(Context& outer, const Params& of_expert, const Params& stacked);

  // The calls that follow are for this expert.
  void select(int64_t expert);
  // The slices of the selected expert's parameters, as autograd leaves, in the order of `of_expert`.
  const std::vector<at::Tensor>& values() const { return values_; }
  // Adds the gradient of an expert's parameter, given by its index: at once, or in the action W.
  void add_gradient(int64_t expert, size_t param, const at::Tensor& gradient);
  // Call after the backwards of all experts: the gradients of experts without rows become zero.
  void finish(const std::shared_ptr<ExpertContext>& self);

  const at::Tensor& param(const Param& param) override;
  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string&) const override { return false; }
  int64_t first_sample() const override;
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override;
  void loss(const std::string& name, at::Tensor sum, Per per) override;
  SinkFn grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;

 private:
  struct Stack {
    const Param* of_expert;
    const Param* of_all;
    SinkFn open;
    std::optional<Sink> sink;   // of all experts; opened at the first use
    std::vector<bool> has_sum;  // by expert
  };
  static Sink sink(Stack& stack, int64_t expert);
  size_t index_of(const Param& param) const;

  Context& outer_;
  std::vector<Stack> stacks_;
  int64_t expert_ = 0;
  std::vector<at::Tensor> values_;
};

}  // namespace zt::moe
