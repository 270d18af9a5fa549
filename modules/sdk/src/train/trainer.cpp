#include "zt/train/trainer.h"

#include "alike.h"
#include "by_hand.h"
#include "execute/counts.h"
#include "measure.h"
#include "memory_check.h"
#include "options_check.h"
#include "plan/plan.h"
#include "report.h"
#include "runner.h"
#include "simulate/simulate.h"
#include "store.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/process/log.h"

namespace zt {

ZT_DEFINE_OBJECT(Trainer, "Trainer")

Stateful::~Stateful() = default;
Visitor::~Visitor() = default;

namespace {

std::unique_ptr<Store> make_store(const std::shared_ptr<const Plan>& plan, bool is_dry) {
  if (!is_dry) check_memory(*plan);
  auto links = std::make_shared<const MeshLinks>(plan->spec().mesh(), plan->link_needs());
  return std::make_unique<Store>(plan, std::move(links), is_dry ? Buffers::none : Buffers::allocated);
}

// Says on rank 0 if the checkpoint's run multiplied matrices by other providers.
void compare_gemm(const Value& saved, const World& place) {
  const std::vector<std::string> groups = differing_gemm_groups(saved);
  if (groups.empty() || place.rank != 0) return;
  log(LogLevel::warn, place,
      fmt::format("this process multiplies {} by other providers than the run that was saved did: sums have other bits",
                  fmt::join(groups, ", ")));
}

}  // namespace

Trainer::Trainer(std::shared_ptr<ProgramSpec> spec, TrainerOptions options)
    : spec_(std::move(spec)),
      options_(std::move(options)),
      plan_(Plan::make(spec_, options_.optimizer)),
      store_(make_store(plan_, options_.dry)),
      control_(std::make_unique<StepControl>(options_)),
      report_(std::make_unique<Report>(plan_)) {
  if (options_.dry) return;
  runs_ = std::make_unique<ProgramRuns>(plan_, *store_, options_.optimizer, trace_);
  runner_ = std::make_unique<Runner>(plan_, *runs_, *control_);
  by_hand_ = std::make_unique<ByHand>(plan_, *runs_, *runner_, *control_);
}

Trainer::~Trainer() = default;

std::shared_ptr<Trainer> Trainer::make(std::shared_ptr<ProgramSpec> spec, TrainerOptions options) {
  Communicator* control = control_of_all(*spec);
  run_together(control, [&] {
    check_options(*spec, options);
    if (!options.optimizer) spec = spec->frozen();
  });
  if (options.optimizer && spec->precision().params == at::kHalf && !options.loss_scale) options.loss_scale = LossScaleOptions{};
  const std::string why = "the ranks would train other models than one another";
  check_alike(facts_of(*spec, options), control, why);
  Facts initial;
  run_together(control, [&] { initial = initial_facts_of(*spec); });
  check_alike(initial, control, why);
  return std::shared_ptr<Trainer>(new Trainer(std::move(spec), std::move(options)));
}

ProgramRuns& Trainer::runs() const {
  if (!runs_) misuse("this trainer is dry: it reports, but has no buffers to run on");
  return *runs_;
}

Runner& Trainer::runner() const {
  runs();
  return *runner_;
}

ByHand& Trainer::by_hand() const {
  runs();
  return *by_hand_;
}

// The store, once no action is in flight.
const Store& Trainer::drained_store() {
  runs().require_alive();
  runs().drain();
  return *store_;
}

// Returns what `read` reads from the store. Where the last step failed on this rank only, it still takes part, because the other
// ranks do not know, and throws afterwards.
template <class Read>
auto Trainer::read(Read&& read) {
  auto result = read(drained_store());
  runs().require_sound();
  return result;
}

const StepState& Trainer::state() const {
  return store_->state();
}

bool Trainer::trains() const {
  return plan_->trains();
}

void Trainer::require_optimizer(const char* call) const {
  if (trains()) return;
  misuse("trainer:{}: this trainer has no optimizer, so it runs no training steps: give zt.trainer{{optimizer = ...}} to train",
         call);
}

StepResult Trainer::step(const StepBatch& batch) {
  require_optimizer("step");
  by_hand().refuse("step");
  return runner().step(batch);
}

StepResult Trainer::evaluate(const StepBatch& batch) {
  by_hand().refuse("evaluate");
  return runner().evaluate(batch);
}

std::map<std::string, at::Tensor> Trainer::infer(const StepBatch& batch) {
  by_hand().refuse("infer");
  return runner().infer(batch);
}

Value Trainer::infer(const StepBatch& batch, const std::function<Value(const std::map<std::string, at::Tensor>&)>& reduce) {
  by_hand().refuse("infer");
  return runner().infer(batch, reduce);
}

double Trainer::forward(const Batch& micro_batch) {
  require_optimizer("forward");
  return by_hand().forward(micro_batch);
}

void Trainer::backward() {
  require_optimizer("backward");
  by_hand().backward();
}

StepResult Trainer::finish_step(double divisor) {
  require_optimizer("finish_step");
  return by_hand().finish_step(divisor);
}

std::vector<std::string> Trainer::idle_axes() const {
  return plan_->idle_axes();
}

void Trainer::set_lr(std::optional<double> lr) {
  require_optimizer("set_lr");
  control_->set_lr(lr);
}

double Trainer::loss_scale() const {
  return control_->loss_scale();
}

void Trainer::drain() {
  if (runs_) runs_->drain();
}

const std::vector<ModelTensor>& Trainer::tensors() const {
  return store_->tensors();
}

const ModelTensor& Trainer::tensor(const std::string& name) const {
  return store_->tensors()[store_->find(name)];
}

at::Tensor Trainer::parameter(const std::string& name) {
  const int tensor = store_->find(name);
  return read([&](const Store& store) { return store.parameter(tensor); });
}

at::Tensor Trainer::master(const std::string& name) {
  const int tensor = store_->find(name);
  return read([&](const Store& store) { return store.master(tensor); });
}

at::Tensor Trainer::gradient(const std::string& name) {
  require_optimizer("gradient");
  const int param = store_->find_parameter(name, "gradient");
  const ParamInfo& info = store_->info(param);
  if (!info.trainable) misuse("parameter '{}' is frozen: it has no gradient", name);
  by_hand().refuse_gradient();
  const Store& store = drained_store();
  runs().require_sound();
  if (runs().has_partial_gradients() && !by_hand().is_under_way())
    misuse("trainer:gradient: the last step failed, so there is no gradient: run a step first");
  if (plan_->held().units[info.unit].plan.state != Residence::sharded) runs().parts().gradients.complete(info.unit);
  const at::Tensor sum = store.gradient_shards(param);
  const bool is_short = sum.element_size() < 4;
  return (is_short ? sum.to(at::kFloat) : sum).div_(state().grad_divisor);
}

std::map<std::string, at::Tensor> Trainer::optimizer_state(const std::string& name) {
  const int tensor = store_->find(name);
  return read([&](const Store& store) { return store.optimizer_state(tensor); });
}

void Trainer::set_parameter(const std::string& name, const at::Tensor& values, std::optional<int> from) {
  const int tensor = store_->find(name);
  by_hand().refuse("set_parameter");
  runs().require_sound();
  drained_store().set_parameter(tensor, values, from);
}

void Trainer::set_optimizer_state(const std::string& name, const std::string& state, const at::Tensor& values,
                                  std::optional<int> from) {
  const int param = store_->find_parameter(name, "optimizer state");
  by_hand().refuse("set_optimizer_state");
  runs().require_sound();
  drained_store().set_optimizer_state(param, state, values, from);
}

std::vector<MemoryLine> Trainer::memory() {
  if (!runner_) return report_->memory({}, {});
  auto measured = store_->bytes();
  measured["gradients"] += runs_->parts().gradients.extra_bytes();
  measured["activations"] = runner_->activation_bytes();
  return report_->memory(measured, runner_->shapes());
}

std::string Trainer::report() {
  return report_->text(memory());
}

int64_t Trainer::predict_activations(const StepBatch& batch) {
  return report_->predict_activations(plan_->cut(batch));
}

Value Trainer::plan(const StepBatch& batch) {
  return plan_->of_all_ranks(batch);
}

std::shared_ptr<Simulation> Trainer::simulate(const StepBatch& batch, const Costs& costs,
                                              const std::shared_ptr<const ProgramSpec>& program) const {
  if (program && program->model() != spec_->model())
    misuse("trainer:simulate: the program is of another model than the trainer's");
  if (!program) return zt::simulate(*plan_, batch, costs);
  return zt::simulate(options_.optimizer ? program : program->frozen(), options_.optimizer, batch, costs);
}

Costs Trainer::costs(const StepBatch& batch, int steps) {
  require_optimizer("costs");
  if (steps < 1) misuse("trainer:costs measures at least 1 step, not {}", steps);
  by_hand().refuse("costs");
  CostMeter meter(*plan_);
  for (int step = 0; step < steps; ++step) runner().step(batch, [&](Executor& running) { meter.run(running, runs().state()); });
  return meter.costs(plan_->cut(batch));
}

// A Misuse refuses what is to be loaded before anything has changed.
void Trainer::visit_tensors(Visitor& visitor) {
  try {
    store_->visit_tensors(visitor);
  } catch (const Misuse&) {
    throw;
  } catch (const std::exception& error) {
    if (visitor.is_load()) runs().set_half_loaded(error.what());
    throw;
  }
}

void Trainer::visit(Visitor& visitor) {
  if (visitor.is_load()) by_hand().refuse("visit");
  runs().require_alive();
  if (!visitor.is_load() && !visitor.precedes_load()) runs().require_sound();
  runs().drain();
  const Store& store = *store_;
  if (options_.optimizer) visitor.kind("trainer/optimizer", options_.optimizer->kind(), {"optimizer/", "trainer/updates"});
  else
    visitor.ignore(
        {"optimizer/", "trainer/optimizer", "trainer/updates", "trainer/loss_scale", "trainer/lr", "trainer/seed_exponent"});
  visit_tensors(visitor);
  Value step(state().step), products = to_value(gemm_choice());
  visitor.value("trainer/step", step);
  if (options_.optimizer) {
    control_->visit(visitor);
    runner().visit_values(visitor);
  }
  visitor.value("trainer/gemm", products);
  if (!visitor.is_load()) return;
  compare_gemm(products, plan_->place());
  convert(step, "trainer/step", store_->state().step);
  store.gather_parameters();
  runs().set_sound();
}

}  // namespace zt
