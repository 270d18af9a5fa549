#include "runner.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <atomic>

#include "model/unit_build.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/execute/resource_check.h"
#include "zt/process/log.h"

namespace zt {

namespace {

std::vector<std::vector<Segment>> updates_of(const StepState& state, const Optimizer* optimizer) {
  std::vector<std::vector<Segment>> updates;
  if (!optimizer) return updates;
  for (const Unit& unit : state.units) updates.push_back(segments_of(*state.model, unit, *optimizer));
  return updates;
}

// Returns the outputs of all micro-batches, joined along the samples.
at::Tensor joined(const std::string& name, const std::vector<at::Tensor>& parts) {
  for (size_t m = 1; m < parts.size(); ++m) {
    if (parts[m].sizes().slice(1) == parts[0].sizes().slice(1)) continue;
    misuse(
        "the output '{}' of micro-batch {} has the shape [{}] and that of micro-batch 0 [{}], so they cannot be joined along the "
        "samples: infer with one micro-batch of each shape",
        name, m, fmt::join(parts[m].sizes(), ", "), fmt::join(parts[0].sizes(), ", "));
  }
  return at::cat(parts);
}

}  // namespace

Runner::Runner(std::shared_ptr<const Plan> plan, Store& store, StepControl& control, std::shared_ptr<const Optimizer> optimizer,
               Trace& trace)
    : plan_(std::move(plan)),
      state_(store.state()),
      control_(control),
      trace_(trace),
      normalisation_(std::make_shared<Normalisation>()),
      compute_(std::make_shared<ComputeState>(plan_->spec().model(), state_, positions_run(plan_->main(), plan_->model()))),
      handlers_(step_handlers(compute_, normalisation_, optimizer, updates_of(state_, optimizer.get()))) {
  const bool checks = checks_resources();
  for (const auto& pass : plan_->spec().passes()) {
    for (const auto& [id, handler] : pass->handlers()) {
      const bool is_checked = checks && kind(id).role != Role::transfer;  // to wait for a send at once could take for ever
      if (!handlers_.emplace(id, is_checked ? with_resource_check(handler) : handler).second)
        misuse("the pass {} brings a handler for {}, which has one already", pass->name(), kind(id).name);
    }
  }
}

void Runner::drain() {
  if (running_) running_->drain();
  running_ = nullptr;
}

Executor& Runner::executor(Mode mode) {
  auto& held = executors_[mode];
  if (!held) {
    Program program = plan_->program(mode);
    if (checks_resources()) {  // nothing else may be in flight while an action is checked
      for (Action& action : program.actions) {
        if (role_of(action) != Role::transfer) action.attrs["wait"] = true;
      }
    }
    held = std::make_unique<Executor>(
        std::move(program), *state_.model, handlers_, [this](int unit) { complete_gradient(unit); }, &trace_,
        [this](const Resource& resource) { return plan_->held().slots.buffer_of(resource); });
  }
  return *held;
}

Executor& Runner::activate(Mode mode) {
  Executor& wanted = executor(mode);
  if (running_ != &wanted) drain();
  running_ = &wanted;
  return wanted;
}

void Runner::note_shapes(const std::vector<Batch>& micro_batches) {
  if (has_shapes_of(shapes_, micro_batches)) return;
  shapes_ = on_meta(micro_batches);
  is_measured_ = false;
}

// Throws Misuse if a training step could train nothing.
void Runner::check_objective() const {
  const ModelInfo& model = *state_.model;
  if (model.losses.empty()) {
    misuse(
        "the model has no loss, so a step would train nothing: let it end with a layer that adds a loss, such as nn.lm_loss or "
        "zt.loss(fn); without a loss there is trainer:infer");
  }
  if (std::ranges::none_of(model.params, &ParamInfo::trainable))
    misuse("all parameters of the model are frozen, so a step would train nothing: freeze fewer, or use trainer:evaluate");
}

void Runner::begin(const std::vector<Batch>& micro_batches, const Executor& running) {
  if (running.program().mode == Mode::train) check_objective();
  normalisation_->is_by_hand = micro_batches.empty();
  compute_->begin(micro_batches, running.program(), plan_->first_sample(samples_of(micro_batches)));
  is_begun_ = true;
  if (running.program().mode == Mode::train) has_partial_gradients_ = true;
}

StepResult Runner::step(const StepBatch& batch, const std::function<void(Executor&)>& run) {
  require_alive();
  const int64_t begin_ns = now_ns();
  Executor& running = activate(Mode::train);
  attempt(running, 0,
          [&] {
            require_sound();
            given_ = batch.cut(plan_->spec().micro_batches());
            control_.prepare(state_);
            note_shapes(given_);
            begin(given_, running);
            // The peak depends on the shapes alone, and counting slows every allocation down: one step is enough.
            std::optional<AllocationWatch::Scope> counted;
            if (!is_measured_) counted.emplace(activations_);
            run(running);
          },
          {});
  is_measured_ = true;
  return finish_step(begin_ns);
}

StepResult Runner::evaluate(const StepBatch& batch) {
  require_alive();
  const int64_t begin_ns = now_ns();
  Executor& running = activate(Mode::eval);
  attempt(running, 0,
          [&] {
            require_sound();
            begin(batch.cut(plan_->spec().micro_batches(Mode::eval)), running);
            running.run(state_);
          },
          {});
  StepResult evaluated = result(begin_ns);
  evaluated.grad_norm.reset();  // the state holds those of the last step
  evaluated.lr.reset();
  return evaluated;
}

Outputs Runner::run_inference(const StepBatch& batch, Executor& running) {
  ensure_same_step(running.program());
  const int count = plan_->spec().micro_batches(Mode::generate);
  begin(batch.cut(count), running);
  running.run(state_);
  running.drain();  // an exchange may still be under way
  Outputs outputs = compute_->outputs(0);
  for (auto& [name, value] : outputs) {
    std::vector<at::Tensor> parts{value};
    for (int m = 1; m < count; ++m) parts.push_back(compute_->outputs(m).at(name));
    if (count > 1) value = joined(name, parts);
  }
  return outputs;
}

// Returns the outputs of this rank: none if another rank runs the last position.
Outputs Runner::own_outputs(const StepBatch& batch) {
  require_alive();
  Executor& running = activate(Mode::generate);
  Outputs outputs;
  attempt(running, 0,
          [&] {
            outputs = run_inference(batch, running);
            agree_on_failure(running.program());
          },
          {.join = [&] {
            running.join_rest(state_);
            agree_on_failure(running.program());
          }});
  return outputs;
}

Outputs Runner::infer(const StepBatch& batch) {
  Outputs outputs = own_outputs(batch);
  const auto& split = plan_->program(Mode::generate).split_axes;
  return split.empty()
             ? outputs
             : share_outputs(std::move(outputs), state_.links->comm(split), state_.links->control(split), compute_->device());
}

Value Runner::infer(const StepBatch& batch, const std::function<Value(const Outputs&)>& reduce) {
  const Outputs outputs = own_outputs(batch);
  const auto& split = plan_->program(Mode::generate).split_axes;
  return split.empty() ? reduce(outputs) : share_reduced(outputs, reduce, state_.links->control(split));
}

Counts Runner::begin_micro_batch(int micro_batch) {
  const Batch& batch = given_.at(static_cast<size_t>(micro_batch));
  const int64_t samples = samples_of(batch);
  const int64_t first = plan_->first_sample(samples) * plan_->spec().micro_batches() + micro_batch * samples;
  compute_->begin_micro_batch(batch, micro_batch, first);
  const Counts counts = compute_->count(micro_batch);
  compute_->set_seeds({counts.tokens > 0 ? 1.0 / static_cast<double>(counts.tokens) : 0, 1.0 / static_cast<double>(samples)});
  return counts;
}

StepResult Runner::result(int64_t begin_ns) const {
  StepResult result;
  result.step = state_.step;
  result.loss = without_nan_sign(state_.loss);
  result.grad_norm = without_nan_sign(state_.grad_norm);
  result.lr = state_.scalars.lr;
  result.loss_scale = state_.loss_scale;
  result.tokens = state_.counts.tokens;
  result.samples = state_.counts.samples;
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.skipped = !state_.is_finite;
  result.terms = state_.losses;
  result.stats = compute_->report(state_.stats);
  return result;
}

StepResult Runner::finish_step(int64_t begin_ns) {
  const StepResult done = result(begin_ns);
  const bool is_possible = control_.finish(state_.is_finite);
  if (!state_.is_finite) skip_step();
  else if (state_.grad_norm == 0) warn_of_zero_gradient();
  if (!is_possible) {
    fault("step {}: the gradients overflow at the least loss scale ({}): lower min_loss_scale or the learning rate, or give bf16",
          state_.step, control_.loss_scale());
  }
  given_.clear();
  has_partial_gradients_ = false;
  ++state_.step;
  return done;
}

// Warns, once per process.
void Runner::warn_of_zero_gradient() const {
  static std::atomic<bool> is_said = false;
  const World world = plan_->place();
  if (world.rank != 0 || is_said.exchange(true)) return;
  log(LogLevel::warn, world,
      fmt::format(
          "step {}: the gradient of every parameter is exactly 0, so nothing is trained: is the loss detached, or are all "
          "layers before it frozen?",
          state_.step));
}

// The optimizer has changed nothing. A loss scale multiplies gradients only, so it is not the reason if the forward is not
// finite.
void Runner::skip_step() {
  const bool ends = control_.ends_on_nonfinite();
  const World world = plan_->place();
  if (!ends && control_.has_dynamic_loss_scale() && state_.is_forward_finite) {
    log(LogLevel::info, world,
        fmt::format("step {} is skipped: an overflow at loss scale {}; the next is run at {}", state_.step, state_.loss_scale,
                    control_.loss_scale()));
    return;
  }
  const double loss = state_.loss, norm = state_.grad_norm;
  const std::string where = find_nonfinite(*this, *plan_);
  const std::string text =
      message("step {}{}: the loss is {} and the gradient norm {}{}", state_.step, ends ? "" : " is skipped", loss, norm,
              where.empty() ? "" : fmt::format("; the first thing that is not finite is {}", where));
  if (ends) fault("{}: lower the learning rate, clip the gradient, or give on_nonfinite = \"skip\"", text);
  if (world.rank == 0) log(LogLevel::warn, world, text);
}

void Runner::visit_values(Visitor& visitor) {
  Value seed_exponent = normalisation_->seed_exponent ? Value(*normalisation_->seed_exponent) : Value();
  visitor.value("trainer/seed_exponent", seed_exponent);
  if (visitor.is_load()) convert(seed_exponent, "trainer/seed_exponent", normalisation_->seed_exponent);
}

}  // namespace zt
