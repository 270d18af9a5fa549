#include "zt/train/trainer.h"

#include "by_hand.h"
#include "execute/counts.h"
#include "measure.h"
#include "memory_check.h"
#include "options_check.h"
#include "plan/plan.h"
#include "plan/plan_links.h"
#include "plan/plan_table.h"
#include "report.h"
#include "simulate/simulate.h"
#include "store/store.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/process/log.h"

namespace zt {

ZT_DEFINE_OBJECT(Trainer, "Trainer")

Stateful::~Stateful() = default;
Visitor::~Visitor() = default;
PieceSource::~PieceSource() = default;

namespace {

std::unique_ptr<Store> make_store(const std::shared_ptr<const Plan>& plan, bool is_dry) {
  if (!is_dry) check_memory(*plan);
  const auto& mesh = plan->program().mesh();
  auto links = std::make_shared<const MeshLinks>(mesh, plan->place(), link_needs(*plan), mesh ? mesh->next_number() : 0);
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

// The bytes that the trainer holds, by kind and by tier, if all data are where programs have them.
std::map<std::string, int64_t> held_bytes(const Store& store, const TrainerRuns& running) {
  auto held = store.bytes();
  for (const at::Tensor& buffer : running.runs.parts().gradients.more_buffers())
    held["gradients"] += static_cast<int64_t>(buffer.storage().nbytes());
  held["activations"] = running.runner.activation_bytes();
  running.runs.parts().moved.most_bytes_away().add_to(held);
  return held;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<Program> program, TrainerOptions options)
    : program_(std::move(program)),
      options_(std::move(options)),
      plan_(Plan::make(program_, options_.optimizer)),
      store_(make_store(plan_, options_.dry)),
      control_(std::make_unique<StepControl>(options_)),
      report_(std::make_unique<Report>(plan_)) {
  if (!options_.dry) running_ = std::make_unique<TrainerRuns>(plan_, *store_, options_.optimizer, trace_, *control_);
  tensors_ = std::make_unique<TrainerTensors>(*store_, running_.get());
  phases_ = std::make_unique<TrainerPhases>(*store_, running_.get());
}

Trainer::~Trainer() = default;

std::shared_ptr<Trainer> Trainer::make(std::shared_ptr<Program> program, TrainerOptions options) {
  Communicator* control = control_of_all(*program);
  run_together(control, [&] {
    check_options(*program, options);
    if (!options.optimizer) program = program->frozen();
  });
  if (options.optimizer && program->precision().params == at::kHalf && !options.loss_scale)
    options.loss_scale = LossScaleOptions{};
  const std::string why = "the ranks would train other models than one another";
  check_alike(facts_of(*program, options), control, why);
  Facts initial;
  run_together(control, [&] { initial = initial_facts_of(*program); });
  check_alike(initial, control, why);
  return std::shared_ptr<Trainer>(new Trainer(std::move(program), std::move(options)));
}

TrainerRuns& Trainer::running() const {
  return unless_dry(running_.get());
}

const StepState& Trainer::state() const {
  return store_->state();
}

bool Trainer::trains() const {
  return plan_->trains();
}

StepResult Trainer::step(const StepBatch& batch, const UpdateIf& update_if) {
  require_optimizer(*plan_, "step");
  running().require_ready("trainer:step", *plan_, Mode::train);
  return running().runner.step(batch, update_if);
}

std::map<std::string, at::Tensor> Trainer::input_gradients(const StepBatch& batch) {
  require_optimizer(*plan_, "input_gradients");
  running().require_ready("trainer:input_gradients", *plan_, Mode::train);
  return running().runner.input_gradients(batch);
}

StepResult Trainer::evaluate(const StepBatch& batch) {
  running().require_ready("trainer:evaluate", *plan_, Mode::eval);
  return running().runner.evaluate(batch);
}

std::map<std::string, at::Tensor> Trainer::infer(const StepBatch& batch) {
  running().require_ready("trainer:infer", *plan_, Mode::generate);
  return running().runner.infer(batch);
}

Value Trainer::infer(const StepBatch& batch, const ReduceOutputs& reduce, KvCache* cache) {
  running().require_ready("trainer:infer", *plan_, Mode::generate);
  return running().runner.infer(batch, reduce, cache);
}

double Trainer::forward(const Batch& micro_batch) {
  require_optimizer(*plan_, "forward");
  running().runs.health().require_here("trainer:forward");
  return running().by_hand.forward(micro_batch);
}

void Trainer::backward() {
  require_optimizer(*plan_, "backward");
  running().by_hand.backward();
}

StepResult Trainer::finish_step(double divisor) {
  require_optimizer(*plan_, "finish_step");
  return running().by_hand.finish_step(divisor);
}

std::vector<std::string> Trainer::idle_axes() const {
  return zt::idle_axes(*plan_);
}

void Trainer::set_lr(std::optional<double> lr) {
  require_optimizer(*plan_, "set_lr");
  control_->set_lr(lr);
}

double Trainer::loss_scale() const {
  return control_->loss_scale();
}

void Trainer::drain() {
  if (running_) running_->runs.drain();
}

std::vector<MemoryLine> Trainer::memory() {
  if (!running_) return report_->memory({}, {});
  auto measured = held_bytes(*store_, *running_);
  phases_->correct(measured);
  return report_->memory(measured, running_->runner.shapes());
}

std::string Trainer::report() {
  return report_->text(memory()) + phases_->text();
}

int64_t Trainer::predict_activations(const StepBatch& batch) {
  return report_->predict_activations(plan_->cut(batch));
}

void Trainer::describe_inference(const CacheBytes& cache) {
  if (trains() || !options_.dry) misuse("only a dry trainer without an optimizer is described as it infers");
  plan_ = Plan::make(program_, nullptr, Mode::generate, cache);
  report_ = std::make_unique<Report>(plan_);
}

Value Trainer::plan(const StepBatch& batch) {
  return plan_of_all_ranks(*plan_, batch);
}

std::shared_ptr<Simulation> Trainer::simulate(const StepBatch& batch, const Costs& costs,
                                              const std::shared_ptr<const Program>& program) const {
  if (program && program->model() != program_->model())
    misuse("trainer:simulate: the program is of another model than the trainer's");
  if (!program) return zt::simulate(*plan_, batch, costs);
  if (options_.optimizer) return zt::simulate(program, options_.optimizer, batch, costs);
  return zt::simulate(*Plan::make(program->frozen(), nullptr, plan_->main_mode()), batch, costs);
}

Costs Trainer::costs(const StepBatch& batch, int steps) {
  require_optimizer(*plan_, "costs");
  if (steps < 1) misuse("trainer:costs measures at least 1 step, not {}", steps);
  running().require_ready("trainer:costs", *plan_, Mode::train);
  CostMeter meter(*plan_);
  for (int step = 0; step < steps; ++step) {
    running().runner.step(
        batch, [&](Executor& executor) { meter.run(executor, store_->state()); },
        [&](Executor& executor) { meter.join(executor, store_->state()); });
  }
  return meter.costs(plan_->cut(batch));
}

// The beginnings of names that only a trainer with an optimizer has.
static const std::vector<std::string> kOfTraining{"optimizer/",         "buffers/",   "trainer/optimizer",    "trainer/updates",
                                                  "trainer/loss_scale", "trainer/lr", "trainer/seed_exponent"};

// A Misuse refuses what is to be loaded before anything has changed.
void Trainer::visit_tensors(Visitor& visitor) {
  try {
    store_->visit_tensors(visitor);
  } catch (const Misuse&) {
    throw;
  } catch (const std::exception& error) {
    if (visitor.is_load()) running().runs.health().set_half_loaded(error.what());
    throw;
  }
}

void Trainer::visit(Visitor& visitor) {
  if (visitor.is_load()) running().by_hand.refuse("the load of a checkpoint");
  running().runs.health().require_alive();
  running().runs.health().require_here(visitor.is_load() ? "the load of a checkpoint" : "a checkpoint");
  if (!visitor.is_load() && !visitor.precedes_load()) running().runs.health().require_sound();
  running().runs.drain();
  if (options_.optimizer) visitor.kind("trainer/optimizer", options_.optimizer->kind(), {"optimizer/", "trainer/updates"});
  else visitor.ignore(kOfTraining);
  visit_tensors(visitor);
  Value step(state().step), choice = to_value(gemm_choice());
  visitor.value("trainer/step", step);
  if (options_.optimizer) {
    control_->visit(visitor);
    running().runner.visit_values(visitor);
  }
  visitor.value("trainer/gemm", choice);
  if (!visitor.is_load()) return;
  compare_gemm(choice, plan_->world_place());
  convert(step, "trainer/step", store_->state().step);
  store_->gather_parameters();
  running().runs.health().set_sound();
}

}  // namespace zt
