#include "experts/experts_of.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>

#include "experts/expert_context.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::moe {

namespace {

// The initial values of expert e are those of the expert's parameter under the name "NAME.e".
InitFn init_of_experts(InitFn init, int64_t numel) {
  return [init = std::move(init), numel](uint64_t seed, const std::string& name, int64_t first, std::span<double> out) {
    for (size_t done = 0; done < out.size();) {
      const int64_t element = first + static_cast<int64_t>(done), expert = element / numel, inside = element % numel;
      const auto count = std::min(out.size() - done, static_cast<size_t>(numel - inside));
      init(seed, fmt::format("{}.{}", name, expert), inside, out.subspan(done, count));
      done += count;
    }
  };
}

std::shared_ptr<Param> stacked(const Param& of_expert, const ExpertsOptions& options) {
  auto param = std::make_shared<Param>(of_expert);
  param->local_name = "";
  if (!of_expert.local_name.empty()) param->name = of_expert.local_name;
  param->shape.insert(param->shape.begin(), options.experts);
  param->init = init_of_experts(of_expert.init, of_expert.numel());
  if (!param->dims.empty()) param->dims.insert(param->dims.begin(), "experts");
  if (options.ranks > 1) param->placements = {{options.axis, Placement::sharded, 0, options.ranks}};
  return param;
}

// The graph of one expert's forward.
struct ExpertRun {
  int64_t expert, begin;
  at::Tensor rows, result;             // a leaf, and what the expert has made of it
  std::vector<at::Tensor> parameters;  // leaves
};

class ExpertsOf final : public Layer, public std::enable_shared_from_this<ExpertsOf> {
 public:
  ExpertsOf(std::shared_ptr<Layer> expert, const ExpertsOptions& options)
      : expert_(std::move(expert)), of_expert_(expert_->params()) {
    for (const auto& param : of_expert_) stacked_.push_back(stacked(*param, options));
  }

  std::vector<at::Tensor> forward(at::TensorList in, Context& context) override;
  Params params() const override { return stacked_; }
  Io io() const override { return {.inputs = {"rows", "group_rows"}, .outputs = {{"rows"}}}; }
  TokenScope token_scope() const override {
    return expert_->token_scope() == TokenScope::separate ? TokenScope::separate : TokenScope::all;
  }
  std::string kind() const override { return "experts of " + expert_->kind(); }

  // Runs each expert that has rows. Keeps graphs if grad mode is on.
  std::vector<ExpertRun> run(const at::Tensor& rows, const std::vector<int64_t>& counts, ExpertContext& context) const;
  // Writes the gradient of the expert's rows to `of_rows`, and gives those of its parameters to the context.
  void backward(const ExpertRun& run, const at::Tensor& gradient, const at::Tensor& of_rows, ExpertContext& context) const;

 private:
  // `own`: the experts of this rank.
  static std::vector<int64_t> counts_of(const at::Tensor& rows, const at::Tensor& group_rows, int64_t own);

  std::shared_ptr<Layer> expert_;
  Params of_expert_, stacked_;  // of one expert, and of all
};

struct ExpertsState : torch::CustomClassHolder {
  std::shared_ptr<const ExpertsOf> layer;
  std::shared_ptr<ExpertContext> context;
  std::vector<ExpertRun> runs;
};

at::Tensor joined(const std::vector<ExpertRun>& runs, const at::Tensor& rows) {
  std::vector<at::Tensor> results;
  for (const ExpertRun& run : runs) results.push_back(run.result.detach());
  return results.empty() ? at::zeros_like(rows) : at::cat(results);
}

struct ExpertsFunction : torch::autograd::Function<ExpertsFunction> {
  // `parameters` are arguments only to tell autograd that the result depends on them.
  static at::Tensor forward(torch::autograd::AutogradContext* node, const at::Tensor& rows, at::TensorList /*parameters*/,
                            const std::vector<int64_t>& counts, const c10::intrusive_ptr<ExpertsState>& state) {
    {
      const at::AutoGradMode grad_mode(true);
      state->runs = state->layer->run(rows, counts, *state->context);
    }
    node->saved_data["kept"] = c10::IValue::make_capsule(state);
    return joined(state->runs, rows);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* node, torch::autograd::variable_list grads) {
    auto& state = *c10::static_intrusive_pointer_cast<ExpertsState>(node->saved_data.at("kept").toCapsule());
    const at::Tensor gradient = grads[0].contiguous(), of_rows = at::zeros_like(gradient);
    const size_t parameters = state.layer->params().size();
    for (const ExpertRun& run : state.runs) {
      const int64_t count = run.rows.size(0);
      state.layer->backward(run, gradient.narrow(0, run.begin, count), of_rows.narrow(0, run.begin, count), *state.context);
    }
    state.context->finish(state.context);
    state.runs.clear();
    torch::autograd::variable_list results{of_rows};
    results.resize(1 + parameters + 2);
    return results;
  }
};

std::vector<ExpertRun> ExpertsOf::run(const at::Tensor& rows, const std::vector<int64_t>& counts, ExpertContext& context) const {
  std::vector<ExpertRun> runs;
  int64_t begin = 0;
  for (size_t expert = 0; expert < counts.size(); begin += counts[expert++]) {
    if (counts[expert] == 0) continue;
    const at::Tensor own = rows.detach().narrow(0, begin, counts[expert]).requires_grad_(at::GradMode::is_enabled());
    context.select(static_cast<int64_t>(expert));
    const RunningContext running(context);
    const at::Tensor result = expert_->forward({own}, context).at(0);
    if (result.sizes() != own.sizes())
      misuse("an expert must return rows like those that it gets, [{}], got {}", fmt::join(own.sizes(), ", "), describe(result));
    runs.push_back({static_cast<int64_t>(expert), begin, own, result, context.values()});
  }
  return runs;
}

void ExpertsOf::backward(const ExpertRun& run, const at::Tensor& gradient, const at::Tensor& of_rows,
                         ExpertContext& context) const {
  if (!run.result.requires_grad()) return;
  torch::autograd::edge_list wanted{torch::autograd::impl::gradient_edge(run.rows)};
  std::vector<size_t> trained;
  for (size_t i = 0; i < run.parameters.size(); ++i) {
    if (!run.parameters[i].requires_grad()) continue;
    wanted.push_back(torch::autograd::impl::gradient_edge(run.parameters[i]));
    trained.push_back(i);
  }
  const auto grads = torch::autograd::Engine::get_default_engine().execute({torch::autograd::impl::gradient_edge(run.result)},
                                                                           {gradient}, false, false, false, wanted);
  if (grads[0].defined()) of_rows.copy_(grads[0]);
  for (size_t k = 0; k < trained.size(); ++k) {
    if (grads[k + 1].defined()) context.add_gradient(run.expert, trained[k], grads[k + 1]);
  }
}

std::vector<int64_t> ExpertsOf::counts_of(const at::Tensor& rows, const at::Tensor& group_rows, int64_t own) {
  if (rows.is_meta()) {  // as if one expert had all rows
    std::vector<int64_t> counts(static_cast<size_t>(own), 0);
    counts[0] = rows.size(0);
    return counts;
  }
  if (group_rows.scalar_type() != at::kLong || group_rows.numel() != own || group_rows.sum().item<int64_t>() != rows.size(0))
    misuse("group_rows must be {} int64 numbers whose sum is {}, got {}", own, rows.size(0), describe(group_rows));
  const auto* first = group_rows.const_data_ptr<int64_t>();
  return {first, first + group_rows.numel()};
}

std::vector<at::Tensor> ExpertsOf::forward(at::TensorList in, Context& context) {
  const at::Tensor rows = in[0];
  const std::vector<int64_t> counts = counts_of(rows, in[1], context.param(*stacked_.front()).size(0));
  const auto of_experts = std::make_shared<ExpertContext>(context, of_expert_, stacked_);
  if (!at::GradMode::is_enabled()) return {joined(run(rows, counts, *of_experts), rows)};
  const auto state = c10::make_intrusive<ExpertsState>();
  state->layer = shared_from_this();
  state->context = of_experts;
  std::vector<at::Tensor> parameters;
  for (const auto& param : stacked_) parameters.push_back(context.param(*param));
  return {ExpertsFunction::apply(rows, at::TensorList(parameters), counts, state)};
}

}  // namespace

std::shared_ptr<Layer> make_experts_of(std::shared_ptr<Layer> expert, const ExpertsOptions& options) {
  const Io io = expert->io();
  if (io.inputs.size() != 1 || io.outputs.size() != 1)
    misuse("an expert takes one value and returns one, but '{}' has {} inputs and {} outputs", expert->kind(), io.inputs.size(),
           io.outputs.size());
  if (std::ranges::any_of(expert->params(), [](const auto& param) { return param->is_adapter; }))
    misuse(
        "the expert '{}' has the option lora: experts cannot have adapters, because the matrices of all experts are one tensor, of "
        "which adapters and their files know nothing. Give the option to attention or to dense layers",
        expert->kind());
  if (expert->params().empty()) misuse("the expert '{}' has no parameters, so all experts would be the same", expert->kind());
  if (!expert->axes().empty() || !io.losses.empty() || dynamic_cast<ExchangeLayer*>(expert.get()))
    misuse("the expert '{}' communicates or adds a loss: an expert must be a function of its rows", expert->kind());
  return std::make_shared<ExpertsOf>(std::move(expert), options);
}

}  // namespace zt::moe
