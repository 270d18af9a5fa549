#include "runner.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <exception>
#include <nlohmann/json.hpp>
#include <tuple>

#include "asked_update.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/process/log.h"

namespace zt {

namespace {

constexpr int64_t kSamples = 0, kTokens = 1;  // the dims along which outputs are joined

// Returns the outputs of all micro-batches, joined along dim `dim`.
at::Tensor joined(const std::string& name, const std::vector<at::Tensor>& parts, int64_t dim) {
  for (size_t m = 1; m < parts.size() && dim == kSamples; ++m) {
    if (parts[m].sizes().slice(1) == parts[0].sizes().slice(1)) continue;
    misuse(
        "the output '{}' of micro-batch {} has the shape [{}] and that of micro-batch 0 [{}], so they cannot be joined along the "
        "samples: infer with one micro-batch of each shape",
        name, m, fmt::join(parts[m].sizes(), ", "), fmt::join(parts[0].sizes(), ", "));
  }
  return at::cat(parts, dim);
}

// Returns the outputs of all micro-batches, joined along dim `dim`. outputs_of(m): those of micro-batch m.
template <class OutputsOf>
Outputs joined_outputs(int count, int64_t dim, const OutputsOf& outputs_of) {
  Outputs outputs = outputs_of(0);
  for (auto& [name, value] : outputs) {
    std::vector<at::Tensor> parts{value};
    for (int m = 1; m < count; ++m) parts.push_back(outputs_of(m).at(name));
    if (count > 1) value = joined(name, parts, dim);
  }
  return outputs;
}

// Lets the layers of a run use a cache, which may be null.
class CacheScope {
 public:
  CacheScope(StepState& state, KvCache* cache) : state_(state) { state_.kv_cache = cache; }
  ~CacheScope() { state_.kv_cache = nullptr; }
  CacheScope(const CacheScope&) = delete;

 private:
  StepState& state_;
};

// Gives the outputs of the first rank that has any to all ranks: `mine` on that rank, copies on `device` elsewhere. comm,
// control: the communicators of an axis, as in Axis. Collective.
Outputs share_outputs(Outputs mine, Communicator& comm, Communicator& control, at::Device device) {
  using Described = std::vector<std::tuple<std::string, int64_t, std::vector<int64_t>>>;  // name, dtype and sizes of each output
  Described described;
  for (const auto& [name, tensor] : mine)
    described.emplace_back(name, static_cast<int64_t>(tensor.scalar_type()), tensor.sizes().vec());
  const std::vector<Value> all = control.all_gather_values(Value::from_json(described), "shares the outputs of an inference");
  for (int rank = 0; rank < comm.size(); ++rank) {
    described = all[rank].to_json().get<Described>();
    if (described.empty()) continue;
    Outputs shared;
    for (const auto& [name, dtype, sizes] : described) {
      const auto options = at::TensorOptions().dtype(static_cast<at::ScalarType>(dtype)).device(device);
      const at::Tensor tensor = rank == comm.rank() ? mine.at(name).contiguous() : at::empty(sizes, options);
      comm.broadcast(tensor, rank).synchronize();
      shared.emplace(name, tensor);
    }
    return shared;
  }
  return mine;
}

// Returns what a script's function makes of outputs: a plain value, as other ranks could not get a tensor or a function.
Value reduced(const Outputs& outputs, const ReduceOutputs& reduce, Health& health) {
  const Health::Busy busy(health);
  Value value = reduce(outputs);
  value.to_json();
  return value;
}

// Returns the value of the first rank that has one, on all ranks. Collective over `control`.
Value share_value(const std::optional<Value>& mine, Communicator& control) {
  const Value result = mine ? Value(Value::Table{{"value", *mine}}) : Value();
  for (const Value& each : control.all_gather_values(result, "shares the outputs of an inference")) {
    if (const auto* table = each.get_if<Value::Table>()) return table->at("value");
  }
  return {};
}

// Warns, once per process, that a step has trained nothing.
void warn_of_zero_gradient(const World& world, int64_t step) {
  static std::atomic<bool> is_said = false;
  if (world.rank != 0 || is_said.exchange(true)) return;
  log(LogLevel::warn, world,
      fmt::format(
          "step {}: the gradient of every parameter is exactly 0, so nothing is trained: is the loss detached, are all layers "
          "before it frozen, or are all its weights 0, such as advantages of answers with equal rewards?",
          step));
}

}  // namespace

void Runner::note_shapes(const std::vector<Batch>& micro_batches) {
  if (has_shapes_of(shapes_, micro_batches)) return;
  shapes_ = on_meta(micro_batches);
  is_measured_ = false;
}

StepResult Runner::step(const StepBatch& batch, const UpdateIf& update_if) {
  is_declined_ = false;
  return step(batch, [&](Executor& running) {
    if (update_if) is_declined_ = run_asking(running, runs_, *plan_, update_if);
    else running.run(state_);
  });
}

StepResult Runner::step(const StepBatch& batch, const Call& run, const Call& join) {
  runs_.health().require_alive();
  const int64_t begin_ns = now_ns();
  Executor& running = runs_.activate(Mode::train);
  Rescue rescue;
  if (join) rescue.join = [&] { join(running); };
  runs_.attempt(running, 0, rescue, [&] {
    runs_.health().require_sound();
    std::vector<Batch> micro_batches = batch.cut(plan_->program().micro_batches());
    control_.prepare(state_);
    note_shapes(micro_batches);
    runs_.begin(std::move(micro_batches), running);
    // The peak depends on the shapes alone, and counting slows every allocation down: one step is enough.
    std::optional<AllocationWatch::Scope> counted;
    if (!is_measured_) counted.emplace(activations_);
    run(running);
  });
  is_measured_ = true;
  return finish_step(begin_ns);
}

StepResult Runner::evaluate(const StepBatch& batch) {
  runs_.health().require_alive();
  const int64_t begin_ns = now_ns();
  Executor& running = runs_.activate(Mode::eval);
  runs_.attempt(running, 0, {}, [&] {
    runs_.health().require_sound();
    runs_.begin(batch.cut(plan_->program().micro_batches(Mode::eval)), running);
    running.run(state_);
  });
  StepResult evaluated = result(begin_ns);
  evaluated.grad_norm.reset();  // the state holds those of the last step
  evaluated.lr.reset();
  return evaluated;
}

Outputs Runner::run_inference(const StepBatch& batch, Executor& running) {
  runs_.ensure_same_step(running.program());
  const int count = plan_->program().micro_batches(Mode::generate);
  runs_.refuse_together(running.program(), [&] {
    runs_.begin(batch.cut(count), running);
    runs_.parts().batches.check(Mode::generate);
  });
  runs_.ensure_same_samples(running.program());
  running.run(state_);
  running.drain();  // an exchange may still be under way
  return joined_outputs(count, state_.kv_cache ? kTokens : kSamples, [this](int m) { return runs_.layers().outputs(m); });
}

// Returns the outputs of this rank: none if another rank runs the last position.
Outputs Runner::own_outputs(const StepBatch& batch, KvCache* cache) {
  runs_.health().require_alive();
  Executor& running = runs_.activate(Mode::generate);
  Outputs outputs;
  const CacheScope in_use(state_, cache);
  const auto join = [&] {
    running.join_rest(state_);
    runs_.agree_on_failure(running.program());
  };
  runs_.attempt(running, 0, {.join = join}, [&] {
    outputs = run_inference(batch, running);
    runs_.agree_on_failure(running.program());
  });
  return outputs;
}

Outputs Runner::infer(const StepBatch& batch) {
  Outputs outputs = own_outputs(batch);
  const auto& split = plan_->rank_program(Mode::generate).split_axes;
  return split.empty() ? outputs
                       : share_outputs(std::move(outputs), state_.links->comm(split), state_.links->control(split),
                                       runs_.parts().layers.options().device());
}

Value Runner::infer(const StepBatch& batch, const ReduceOutputs& reduce, KvCache* cache) {
  const Outputs outputs = own_outputs(batch, cache);
  const RankProgram& program = plan_->rank_program(Mode::generate);
  const bool is_split = !program.split_axes.empty();
  std::optional<Value> value;
  runs_.refuse_together(program, [&] {
    if (!is_split || !outputs.empty()) value = reduced(outputs, reduce, runs_.health());
  });
  return is_split ? share_value(value, state_.links->control(program.split_axes)) : *value;
}

StepResult Runner::result(int64_t begin_ns) const {
  return {.step = state_.step,
          .loss = without_nan_sign(state_.loss),
          .grad_norm = without_nan_sign(state_.grad_norm),
          .lr = state_.scalars.lr,
          .loss_scale = state_.loss_scale,
          .tokens = state_.counts.tokens,
          .samples = state_.counts.samples,
          .seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9,
          .skipped = !state_.is_finite,
          .terms = state_.losses,
          .stats = runs_.parts().stats.report(state_.stats)};
}

StepResult Runner::finish_step(int64_t begin_ns) {
  const StepResult done = result(begin_ns);
  const bool is_declined = std::exchange(is_declined_, false);
  const bool is_possible = is_declined || control_.finish(state_.is_finite);
  if (is_declined) log(LogLevel::info, plan_->world_place(), fmt::format("step {} makes no update, as it was told", state_.step));
  else if (!state_.is_finite) skip_step();
  else if (state_.grad_norm == 0) warn_of_zero_gradient(plan_->world_place(), state_.step);
  if (!is_possible) {
    fault("step {}: the gradients overflow at the least loss scale ({}): lower min_loss_scale or the learning rate, or give bf16",
          state_.step, control_.loss_scale());
  }
  runs_.end_step();
  ++state_.step;
  return done;
}

// The optimizer has changed nothing. A loss scale multiplies gradients only, so it is not the reason if the forward is not
// finite.
void Runner::skip_step() {
  const bool ends = control_.ends_on_nonfinite();
  const World world = plan_->world_place();
  if (!ends && control_.has_dynamic_loss_scale() && state_.is_forward_finite) {
    log(LogLevel::info, world,
        fmt::format("step {} is skipped: an overflow at loss scale {}; the next is run at {}", state_.step, state_.loss_scale,
                    control_.loss_scale()));
    return;
  }
  const double loss = state_.loss, norm = state_.grad_norm;
  const std::string where = find_nonfinite(runs_, *plan_);
  const std::string text =
      message("step {}{}: the loss is {} and the gradient norm {}{}", state_.step, ends ? "" : " is skipped", loss, norm,
              where.empty() ? "" : fmt::format("; the first thing that is not finite is {}", where));
  if (ends) fault("{}: lower the learning rate, clip the gradient, or give on_nonfinite = \"skip\"", text);
  if (world.rank == 0) log(LogLevel::warn, world, text);
}

void Runner::visit_values(Visitor& visitor) {
  std::optional<int>& exponent = runs_.parts().scale.exponent;
  Value saved = exponent ? Value(*exponent) : Value();
  visitor.value("trainer/seed_exponent", saved);
  if (visitor.is_load()) convert(saved, "trainer/seed_exponent", exponent);
}

}  // namespace zt
