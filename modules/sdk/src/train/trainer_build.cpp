// Making a trainer: programs of all ranks verified, buffers allocated, parameters initialised, executors.
#include <algorithm>
#include <array>

#include "execute/compute.h"
#include "execute/step_handlers.h"
#include "model/unit_build.h"
#include "plan/rank_plan.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/base/zeros.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/plan/slots.h"
#include "zt/random/rng.h"
#include "zt/train/trainer.h"

namespace zt {

Trainer::Trainer(std::shared_ptr<ProgramSpec> spec, TrainerOptions options)
    : spec_(std::move(spec)), options_(std::move(options)) {
  state_.model = &spec_->model()->info();
  if (options_.loss_scale) loss_scale_.emplace(*options_.loss_scale);
  state_.comm = [mesh = spec_->mesh()](const std::vector<std::string>& axes) -> Communicator& {
    if (!mesh) misuse("the program communicates over '{}', but no pass gave it a mesh", fmt::join(axes, "', '"));
    return *mesh->join(axes)->communicator;
  };
}

std::shared_ptr<Trainer> Trainer::make(std::shared_ptr<ProgramSpec> spec, TrainerOptions options) {
  if (!options.optimizer) misuse("a trainer needs an optimizer: give optimizer = optim.adamw{{...}}");
  if (options.optimizer->scope() != Scope::element) {
    misuse("the optimizer {} needs whole tensors, which sharded units do not hold yet: use one that works element by element",
           options.optimizer->kind());
  }
  for (const auto& param : spec->model()->params()) {
    if (param->values.defined())
      misuse("the model is held by another trainer (parameter '{}'): make a model of its own for each", param->name);
  }
  const bool is_fp16 = spec->precision().params == at::kHalf;
  if (options.loss_scale && !is_fp16) {
    misuse("a loss scale is for fp16, whose small gradients become zero; this program computes in {}: leave fp16 = {{...}} out",
           float_type_name(spec->precision().params));
  }
  if (is_fp16 && !options.loss_scale) options.loss_scale = LossScaleOptions{};
  if (is_fp16 && options.loss_scale->is_dynamic() && options.on_nonfinite == OnNonfinite::error) {
    misuse("a dynamic loss scale is found by steps that overflow: give on_nonfinite = \"skip\", or a constant fp16.loss_scale");
  }
  options.optimizer->check(spec->model()->info());
  std::shared_ptr<Trainer> trainer(new Trainer(std::move(spec), std::move(options)));
  for (const Mode mode : kModes) trainer->programs_[static_cast<size_t>(mode)] = trainer->verified_program(mode);
  trainer->check_units_alike();
  for (const Action& action : trainer->program(Mode::train).actions) {
    if (action.kind == Kinds::get().count) trainer->data_axes_ = action.axes();
  }
  trainer->check_gemm_alike();
  trainer->make_units();
  trainer->spec_->model()->set_trainer(trainer);
  return trainer;
}

// This rank's program. Rank 0 verifies all; the others compare what they would run with what rank 0 verified. All ranks hear the
// outcome.
std::shared_ptr<const Program> Trainer::verified_program(Mode mode) const {
  const auto programs = spec_->build_all(mode);
  std::string hashes;
  for (const auto& program : programs) hashes += fmt::format("{:016x}", program->hash());
  const std::string fingerprint = fmt::format("{:016x}", stable_hash(hashes));
  std::string complaint;
  const Coord coord = spec_->coord();
  if (coord.rank == 0) {
    std::vector<const Program*> by_rank;
    for (const auto& program : programs) by_rank.push_back(program.get());
    for (const Refusal& refusal : verify(*state_.model, coord.shape, by_rank)) complaint += "\n  " + refusal.text();
  }
  if (spec_->mesh() && coord.shape.world_size() > 1) {
    const auto outcomes = spec_->mesh()->world()->communicator->all_gather_values(
        Value::Table{{"programs", fingerprint}, {"complaint", complaint}});
    const auto text = [&](size_t rank, const char* key) {
      return *outcomes[rank].get_if<Value::Table>()->at(key).get_if<std::string>();
    };
    for (size_t rank = 1; rank < outcomes.size(); ++rank) {
      if (text(rank, "programs") == text(0, "programs")) continue;
      misuse("rank {} built other programs than rank 0: the script must make the same model and passes on every rank", rank);
    }
    complaint = text(0, "complaint");
  }
  if (!complaint.empty()) misuse("the program is refused:{}", complaint);
  return programs[coord.rank];
}

// All modes use the same buffers.
void Trainer::check_units_alike() const {
  const Program& training = program(Mode::train);
  for (const Mode mode : {Mode::eval, Mode::generate}) {
    for (size_t unit = 0; unit < training.units.size(); ++unit) {
      if (program(mode).units[unit] == training.units[unit]) continue;
      misuse(
          "the training program holds unit '{}' in another way than the program of {} does: all modes use the same buffers. Where "
          "a training program was given whole, its 'unit' lines must be those of the passes: change the passes' options instead",
          state_.model->units[unit].name, mode == Mode::eval ? "evaluation" : "generation");
    }
  }
}

// All ranks multiply by the same providers, else parameters that are equal would drift apart.
void Trainer::check_gemm_alike() const {
  if (!spec_->mesh() || spec_->coord().shape.world_size() == 1) return;
  check_gemm_choices_alike(spec_->mesh()->world()->communicator->all_gather_values(to_value(gemm_choice())));
}

void Trainer::make_units() {
  const ModelInfo& info = *state_.model;
  const Coord coord = spec_->coord();
  const AllocateFn allocate = [this](int64_t numel, at::ScalarType dtype) {
    if (data_axes_.empty()) return large_zeros({numel}, dtype);
    return state_.comm(data_axes_).allocate({numel}, dtype);
  };
  const RankUnits described = describe_rank(coord);
  state_.units = described.units;
  slots_ = std::make_shared<SharedSlots>(described.slots);
  plan_ = std::make_shared<RankPlan>(plan_rank(info, program(Mode::train), described, *options_.optimizer, coord));
  std::vector<std::vector<Segment>> updates;
  for (const Unit& unit : state_.units) updates.push_back(segments_of(info, unit, *options_.optimizer));
  if (options_.dry) return;
  allocate_units(allocate);
  normalisation_ = std::make_shared<Normalisation>();
  compute_ = std::make_shared<ComputeState>(spec_->model(), state_);
  handlers_ = step_handlers(compute_, normalisation_, options_.optimizer, std::move(updates));
  for (const auto& pass : spec_->passes()) {
    for (const auto& [id, handler] : pass->handlers()) {
      if (!handlers_.emplace(id, handler).second) {
        misuse("the pass {} brings a handler for {}, which has one already", pass->name(), kind(id).name);
      }
    }
  }
}

// Programs of all modes use the same buffers: a Param's values never move.
RankUnits Trainer::describe_rank(const Coord& coord) const {
  const bool is_mine = coord.rank == spec_->coord().rank;
  std::array<std::shared_ptr<const Program>, kModes.size()> held = programs_;
  for (const Mode mode : kModes) {
    if (!is_mine) held[static_cast<size_t>(mode)] = std::make_shared<const Program>(spec_->build(mode, coord));
  }
  std::vector<const Program*> programs;
  for (const auto& each : held) programs.push_back(each.get());
  return describe_units(*state_.model, programs, coord);
}

void Trainer::allocate_units(const std::function<at::Tensor(int64_t, at::ScalarType)>& allocate) {
  const Precision& precision = program(Mode::train).precision;
  const auto make = [&](const Slots& slots, at::ScalarType dtype) {
    std::vector<at::Tensor> buffers;
    for (const int64_t size : slots.sizes) buffers.push_back(allocate(size, dtype));
    return buffers;
  };
  const auto parameters = make(slots_->parameters, precision.params), gradients = make(slots_->gradients, precision.grads);
  const auto buffer = [](const std::vector<at::Tensor>& buffers, int slot) { return slot < 0 ? at::Tensor() : buffers[slot]; };
  for (Unit& unit : state_.units) {
    SharedBuffers shared{buffer(parameters, slots_->parameters.of_unit[unit.index]),
                         buffer(gradients, slots_->gradients.of_unit[unit.index])};
    if (unit.node_shared) unit.full = axis_of(unit).allocate_shared({unit.layout.padded()}, precision.params);
    allocate_unit(unit, state_.model->units[unit.index], precision, options_.optimizer->state_names(), allocate, shared);
    initialise_unit(*spec_->model(), unit);
  }
  for (const int unit : units_summed_apart(program(Mode::train)))
    state_.units[unit].grad_sum = allocate(state_.units[unit].layout.chunk, precision.grads);
  if (const int64_t elements = wire_elements(program(Mode::train), state_.units); elements > 0)
    state_.wire = allocate(elements, precision.reduce);
  gather_parameters();
}

// Gives the parameters of all units the values of what the ranks own, but for those that are gathered when they are used.
void Trainer::gather_parameters() {
  for (const Unit& unit : state_.units) {
    unit.round_master();
    if (unit.node_shared) axis_of(unit).barrier();
    else if (unit.layout.ranks > 1 && !unit.owns_shard()) axis_of(unit).all_gather(unit.full, unit.shard).synchronize();
  }
}

World Trainer::place() const {
  World world;
  world.rank = spec_->coord().rank;
  world.size = spec_->coord().shape.world_size();
  return world;
}

Communicator& Trainer::axis_of(const Unit& unit) const {
  return state_.comm({program(Mode::train).units[unit.index].axis});
}

// Units that share a buffer count as one resource, numbered behind the units.
Resource Trainer::buffer_of(const Resource& resource) const {
  if (resource.kind != ResourceKind::param && resource.kind != ResourceKind::grad) return resource;
  const Slots& slots = resource.kind == ResourceKind::param ? slots_->parameters : slots_->gradients;
  const int slot = slots.of_unit[resource.index];
  return slot < 0 ? resource : Resource{resource.kind, static_cast<int32_t>(slots.of_unit.size()) + slot};
}

Executor& Trainer::executor(Mode mode) {
  auto& held = executors_[mode];
  if (!held) {
    const auto complete = [this](int unit) { compute_->gradients().complete(unit); };
    held = std::make_unique<Executor>(program(mode), *state_.model, handlers_, complete, &trace_,
                                      [this](const Resource& resource) { return buffer_of(resource); });
  }
  return *held;
}

}  // namespace zt
