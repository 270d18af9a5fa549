#include "experts/expert_context.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/gemm/packed_stack.h"

namespace zt::moe {

ExpertContext::ExpertContext(Context& outer, const Params& of_expert, const Params& stacked) : outer_(outer) {
  mode = outer.mode;
  recompute = outer.recompute;
  step = outer.step;
  position = outer.position;
  micro_batch = outer.micro_batch;
  for (size_t i = 0; i < of_expert.size(); ++i) {
    const auto experts = static_cast<size_t>(outer.param(*stacked[i]).size(0));
    stacks_.push_back(
        {of_expert[i].get(), stacked[i].get(), outer.grad_sink(*stacked[i]), {}, std::vector<bool>(experts, false)});
  }
}

void ExpertContext::select(int64_t expert) {
  expert_ = expert;
  values_.clear();
  for (const Stack& stack : stacks_) {
    const at::Tensor& all = outer_.param(*stack.of_all);
    const at::Tensor packed = packed_slice(all, expert);
    values_.push_back(packed.defined() ? packed : all.detach().select(0, expert).requires_grad_(all.requires_grad()));
  }
}

// Returns the place of a parameter of the expert.
size_t ExpertContext::index_of(const Param& param) const {
  const auto found = std::ranges::find(stacks_, &param, &Stack::of_expert);
  if (found == stacks_.end()) misuse("the expert uses the parameter '{}', which its params() does not list", param.name);
  return static_cast<size_t>(found - stacks_.begin());
}

const at::Tensor& ExpertContext::param(const Param& param) {
  return values_[index_of(param)];
}

Context::Sink ExpertContext::sink(Stack& stack, int64_t expert) {
  if (!stack.sink) stack.sink = stack.open();
  if (!stack.sink->view.defined()) return {};
  const auto place = static_cast<size_t>(expert);
  const bool is_first = stack.sink->first && !stack.has_sum[place];
  stack.has_sum[place] = true;
  return {stack.sink->view[expert], is_first};
}

Context::SinkFn ExpertContext::grad_sink(const Param& param) {
  return [&stack = stacks_[index_of(param)], expert = expert_] { return sink(stack, expert); };
}

void ExpertContext::defer(std::function<void()> weight_gradient) {
  outer_.defer(std::move(weight_gradient));
}

void ExpertContext::add_gradient(int64_t expert, size_t param, const at::Tensor& gradient) {
  outer_.defer([&stack = stacks_[param], expert, gradient] { sink(stack, expert).add(gradient); });
}

void ExpertContext::finish(const std::shared_ptr<ExpertContext>& self) {
  outer_.defer([self] {
    for (const Stack& stack : self->stacks_) {
      if (!stack.sink || !stack.sink->view.defined() || !stack.sink->first) continue;
      for (size_t expert = 0; expert < stack.has_sum.size(); ++expert) {
        if (!stack.has_sum[expert]) stack.sink->view[static_cast<int64_t>(expert)].zero_();
      }
    }
  });
}

at::Tensor ExpertContext::batch(const std::string& name) {
  misuse("an expert cannot read the batch field '{}': its rows are tokens of many samples", name);
}

int64_t ExpertContext::first_sample() const {
  misuse("an expert does not know the samples of its rows: draw random numbers, such as those of dropout, after the experts");
}

Philox ExpertContext::rng(Purpose) const {
  misuse("an expert cannot draw random numbers, because its rows differ from mesh to mesh: put dropout after the experts");
}

Communicator& ExpertContext::comm(const std::string& axis) {
  misuse("an expert cannot communicate on axis '{}': the ranks have different numbers of experts with rows", axis);
}

void ExpertContext::loss(const std::string& name, at::Tensor, Per) {
  misuse("an expert cannot add the loss '{}': the ranks would add it for different rows; add it in a layer after the experts",
         name);
}

}  // namespace zt::moe
