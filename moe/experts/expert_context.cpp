#include "experts/expert_context.h"

#include <algorithm>

#include "zt/base/error.h"

namespace zt::moe {

ExpertContext::ExpertContext(Context& outer, const Params& of_expert, const Params& stacked) : outer_(outer) {
  mode = outer.mode;
  recompute = outer.recompute;
  step = outer.step;
  position = outer.position;
  micro_batch = outer.micro_batch;
  for (size_t i = 0; i < of_expert.size(); ++i) {
    const auto experts = static_cast<size_t>(stacked[i]->shape[0]);
    stacks_.push_back({of_expert[i].get(), outer.grad_sink(*stacked[i]), {}, std::vector<bool>(experts, false)});
  }
}

void ExpertContext::select(int64_t expert, std::function<void(const std::function<void()>&)> run_as) {
  expert_ = expert;
  run_as_ = std::move(run_as);
}

Context::Sink ExpertContext::sink(Stack& stack, int64_t expert) const {
  if (!stack.sink) stack.sink = stack.open();
  if (!stack.sink->view.defined()) return {};
  const auto place = static_cast<size_t>(expert);
  const bool is_first = stack.sink->first && !stack.has_sum[place];
  stack.has_sum[place] = true;
  return {stack.sink->view[expert], is_first};
}

std::function<Context::Sink()> ExpertContext::grad_sink(const Param& param) {
  const auto found = std::ranges::find(stacks_, &param, &Stack::of_expert);
  if (found == stacks_.end()) misuse("grad_sink: '{}' is not a parameter of this expert", param.name);
  return [this, &stack = *found, expert = expert_] { return sink(stack, expert); };
}

void ExpertContext::defer(std::function<void()> weight_gradient) {
  outer_.defer([run_as = run_as_, weight_gradient = std::move(weight_gradient)] { run_as(weight_gradient); });
}

void ExpertContext::add_gradient(size_t param, const at::Tensor& gradient) {
  outer_.defer([this, &stack = stacks_[param], expert = expert_, gradient] { sink(stack, expert).add(gradient); });
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
