// The gradients of the objective with respect to fields of the batch: the forwards and backwards of a training step, and nothing
// else of it.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "execute/movement/move_slices.h"
#include "runner.h"
#include "zt/base/error.h"

namespace zt {

namespace {

// Sums of gradients, updates and actions of unknown purpose would change what the trainer holds. Of what moves, only parameters
// are needed.
bool is_left_out(const Action& action) {
  const Role role = role_of(action);
  if (role == Role::movement && action.attr("what") != word_of(UnitData::params)) return true;
  return role == Role::other || role == Role::update || role == Role::reduce;
}

int end_of_backwards(const RankProgram& program) {
  const auto norm = std::ranges::find(program.actions, Kinds::get().norm, &Action::kind);
  return static_cast<int>(norm - program.actions.begin());
}

// Lets no later step keep graphs of fields.
struct EndOfWants {
  InputGradients& gradients;
  ~EndOfWants() { gradients.end(); }
};

// Throws Misuse unless the batch has the fields, with whole samples.
void check_fields(const std::vector<std::string>& fields, const std::vector<Batch>& micro_batches,
                  const std::optional<TokenCut>& tokens) {
  for (const std::string& name : fields) {
    const Batch& first = micro_batches.front();
    if (tokens && std::ranges::find(tokens->fields, name) != tokens->fields.end())
      misuse(
          "the program wants the gradient of the batch field '{}', of which each rank along '{}' has some tokens only: leave the axis "
          "out",
          name, tokens->axis);
    if (first.contains(name)) continue;
    std::vector<std::string> names;
    for (const auto& [known, values] : first) names.push_back(known);
    misuse("the program wants the gradient of the batch field '{}', which the batch does not have{}", name, suggest(name, names));
  }
}

}  // namespace

// Ranks along the split axes read the same fields, each in its own layers, and ranks along the token axes with other tokens.
std::map<std::string, at::Tensor> Runner::joined_gradients(const std::vector<Batch>& micro_batches) {
  const auto sums = runs_.parts().input_gradients.end();
  const RankPlace& place = state_.links->place();
  std::vector<std::vector<std::string>> summed_over{place.split_axes, place.token_axes};
  std::erase_if(summed_over, [&](const auto& axes) { return place.coord.size(axes) == 1; });
  std::map<std::string, at::Tensor> gradients;
  for (const std::string& name : plan_->program().input_gradients()) {
    const bool has_some = std::ranges::any_of(sums, [&](const auto& each) { return each.first.first == name; });
    const at::Tensor readers = at::full({1}, has_some ? 1 : 0, at::kLong);
    for (const auto& axes : summed_over) state_.links->control(axes).all_reduce(readers, readers).synchronize();
    if (readers.item<int64_t>() == 0)
      misuse(
          "no gradient flows to the batch field '{}': no layer reads it, or the one that does declares its output with "
          "differentiable = false",
          name);
    std::vector<at::Tensor> parts;
    for (size_t m = 0; m < micro_batches.size(); ++m) {
      const auto found = sums.find({name, static_cast<int>(m)});
      parts.push_back(found != sums.end() ? found->second.contiguous() : at::zeros_like(micro_batches[m].at(name)));
    }
    at::Tensor all = at::cat(parts);
    for (const auto& axes : summed_over) state_.links->comm(axes).all_reduce(all, all).synchronize();
    gradients[name] = all.div_(state_.grad_divisor);
  }
  return gradients;
}

std::map<std::string, at::Tensor> Runner::input_gradients(const StepBatch& batch) {
  runs_.health().require_alive();
  const std::vector<std::string>& fields = plan_->program().input_gradients();
  if (fields.empty())
    misuse(
        "trainer:input_gradients: the program wants none: name the batch fields, as in zt.program(model, {{inputs_need_grad = "
        "{{\"image\"}}}})");
  Executor& running = runs_.activate(Mode::train);
  const auto& actions = running.program().actions;
  const int end = end_of_backwards(running.program());
  const auto join = [&] {
    for (int i = running.next(); i < end; ++i) {
      running.seek(i);
      if (!is_left_out(actions[i])) running.join_rest(state_, i + 1);
    }
    runs_.agree_on_failure(running.program());
  };
  const EndOfWants end_of_wants{runs_.parts().input_gradients};
  std::map<std::string, at::Tensor> gradients;
  runs_.attempt(running, 0, {.join = join}, [&] {
    runs_.health().require_sound();
    std::vector<Batch> micro_batches = batch.cut(plan_->program().micro_batches());
    check_fields(fields, micro_batches, plan_->model().tokens);
    control_.prepare(state_);
    runs_.begin(micro_batches, running);
    runs_.parts().input_gradients.begin(fields);
    for (int i = 0; i < end; ++i) {
      if (!is_left_out(actions[i])) running.run(state_, i, i + 1);
    }
    running.drain();
    drop_slices(state_);  // of parameters for the updates
    runs_.agree_on_failure(running.program());
    gradients = joined_gradients(micro_batches);
  });
  runs_.end_step();
  return gradients;
}

}  // namespace zt
