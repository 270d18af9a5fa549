#include "zt/program/program.h"

#include <algorithm>
#include <map>

#include "zt/base/error.h"

namespace zt {

ZT_DEFINE_OBJECT(Program, "Program")

namespace {

// Inserts the pass so that `passes` stay in the order of phases, and within a phase in the order of application.
void insert_by_phase(std::vector<std::shared_ptr<Pass>>& passes, const std::shared_ptr<Pass>& pass) {
  const auto later = std::find_if(passes.begin(), passes.end(),
                                  [&](const std::shared_ptr<Pass>& other) { return other->phase() > pass->phase(); });
  passes.insert(later, pass);
}

// A program that is to replace the training program of `model`.
void check_given(const RankProgram& program, const ModelInfo& model) {
  if (program.mode != Mode::train)
    misuse("the given program is not a training program (mode=train): only the training program can be replaced");
  if (const size_t units = model.units.size(); program.units.size() != units)
    misuse("the given program has {} units and the model {}: it was made for another model", program.units.size(), units);
}

// Returns whether the ranks of the mesh compute on devices with memory of their own.
bool is_on_device(const Mesh* mesh) {
  const auto is_so = [&](const AxisSize& axis) { return mesh->link({axis.name}).is_on_device; };
  return mesh && std::ranges::any_of(mesh->shape().axes(), is_so);
}

}  // namespace

Program::Program(std::shared_ptr<Model> model, int micro_batches, Precision precision, int eval_micro_batches)
    : model_(std::move(model)),
      info_(model_->shared_info()),
      micro_batches_(micro_batches),
      eval_micro_batches_(eval_micro_batches),
      precision_(precision) {
  for (const int number : {micro_batches, eval_micro_batches}) {
    if (number < 1) misuse("a program needs at least one micro-batch, got {}", number);
  }
}

std::shared_ptr<Program> Program::on_mesh(std::shared_ptr<Mesh> mesh) const {
  if (mesh_ && mesh_ != mesh)
    misuse("the program is given the mesh {}, and an earlier pass uses the mesh {}: take all axes of a program from one mesh",
           mesh->shape().text(), mesh_->shape().text());
  auto next = std::make_shared<Program>(*this);
  next->mesh_ = std::move(mesh);
  next->spans_mesh_ = true;
  return next;
}

std::shared_ptr<Program> Program::apply(std::shared_ptr<Pass> pass) const {
  auto next = std::make_shared<Program>(*this);
  if (const auto mesh = pass->mesh()) {
    if (next->mesh_ && next->mesh_ != mesh) {
      misuse(
          "the pass {} uses the mesh {}, the program or an earlier pass uses the mesh {}: take all axes of a program from one mesh",
          pass->name(), mesh->shape().text(), next->mesh_->shape().text());
    }
    next->mesh_ = mesh;
  }
  insert_by_phase(next->passes_, pass);
  if (given_) insert_by_phase(next->training_passes_, pass);
  return next;
}

std::shared_ptr<Program> Program::replace(const std::shared_ptr<Pass>& pass, std::shared_ptr<Pass> by) const {
  if (given_) misuse("the training program was given by with_actions: {} cannot change it any more", pass->name());
  auto next = std::make_shared<Program>(*this);
  std::ranges::replace(next->passes_, pass, by);
  return next;
}

// One program for all ranks runs the same positions on each. `split_axes`: of the program.
void Program::check_unsplit(const std::vector<std::string>& split_axes, const char* what) const {
  if (split_axes.empty() || !mesh_ || mesh_->coord().size(split_axes) == 1) return;
  misuse(
      "with_actions: {} is that of one rank, and the ranks along '{}' run different positions of the model: give a list with one per "
      "rank, such as {{program:text(0), program:text(1)}}",
      what, fmt::join(split_axes, "', '"));
}

void Program::check_number(size_t given, const char* what) const {
  const int ranks = coord().shape.world_size();
  if (given != static_cast<size_t>(ranks))
    misuse("with_actions: {} {} for a mesh of {} ranks: give one per rank, by rank", given, what, ranks);
}

std::shared_ptr<Program> Program::with_actions(std::vector<Action> actions) const {
  check_unsplit(build(Mode::train, coord()).split_axes, "this list of actions");
  auto next = std::make_shared<Program>(*this);
  next->training_passes_.clear();
  next->before_ = std::make_shared<const Program>(*this);
  next->given_ = [actions = std::move(actions)](const Coord&, RankProgram before) {
    before.actions = actions;
    return before;
  };
  return next;
}

std::shared_ptr<Program> Program::with_actions_by_rank(std::vector<std::vector<Action>> actions) const {
  check_number(actions.size(), "lists of actions");
  auto next = std::make_shared<Program>(*this);
  next->training_passes_.clear();
  next->is_given_by_rank_ = true;
  next->before_ = std::make_shared<const Program>(*this);
  next->given_ = [actions = std::move(actions)](const Coord& coord, RankProgram before) {
    before.actions = actions[static_cast<size_t>(coord.rank)];
    return before;
  };
  return next;
}

std::shared_ptr<Program> Program::with_program(RankProgram program) const {
  check_given(program, *info_);
  check_unsplit(program.split_axes, "this text");
  auto next = std::make_shared<Program>(model_, program.micro_batches, program.precision, eval_micro_batches_);
  next->info_ = info_;
  next->passes_ = passes_;
  next->mesh_ = mesh_;
  next->input_gradients_ = input_gradients_;
  next->given_ = [program = std::move(program)](const Coord&, const RankProgram&) { return program; };
  return next;
}

std::shared_ptr<Program> Program::with_programs(std::vector<RankProgram> programs) const {
  check_number(programs.size(), "texts");
  const RankProgram& first = programs.front();
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    with_context([&] { return fmt::format("the text of rank {}", rank); }, [&] { check_given(programs[rank], *info_); });
    if (programs[rank].micro_batches != first.micro_batches || programs[rank].precision != first.precision)
      misuse("with_actions: the text of rank {} has {} micro-batches of {}, and that of rank 0 {} of {}: they must be the same",
             rank, programs[rank].micro_batches, programs[rank].precision.text(), first.micro_batches, first.precision.text());
  }
  auto next = std::make_shared<Program>(model_, first.micro_batches, first.precision, eval_micro_batches_);
  next->info_ = info_;
  next->passes_ = passes_;
  next->mesh_ = mesh_;
  next->input_gradients_ = input_gradients_;
  next->is_given_by_rank_ = true;
  next->given_ = [programs = std::move(programs)](const Coord& coord, const RankProgram&) {
    return programs[static_cast<size_t>(coord.rank)];
  };
  return next;
}

std::shared_ptr<const Program> Program::for_optimizer(const std::shared_ptr<const Optimizer>& optimizer) const {
  auto next = std::make_shared<Program>(*this);
  for (auto* passes : {&next->passes_, &next->training_passes_}) {
    for (auto& pass : *passes) {
      if (auto fitting = pass->for_optimizer(optimizer)) pass = std::move(fitting);
    }
  }
  if (before_) next->before_ = before_->for_optimizer(optimizer);
  return next;
}

std::shared_ptr<Program> Program::frozen() const {
  if (given_) {
    misuse(
        "a training program was given by with_actions, but without an optimizer nothing is trained: give the trainer an optimizer, "
        "or the program without with_actions");
  }
  auto next = std::make_shared<Program>(*this);
  next->info_ = model_->frozen_info();
  return next;
}

std::shared_ptr<Program> Program::with_input_gradients(std::vector<std::string> fields) const {
  auto next = std::make_shared<Program>(*this);
  next->input_gradients_ = std::move(fields);
  return next;
}

Coord Program::coord() const {
  return mesh_ ? mesh_->coord() : Coord{MeshShape({}, 1), 0};
}

RankProgram Program::build(Mode mode, const Coord& coord) const {
  const auto apply = [&](RankProgram program, const std::vector<std::shared_ptr<Pass>>& passes) {
    program.is_on_device = is_on_device(mesh_.get());
    for (const auto& pass : passes) program = pass->apply(std::move(program), *info_, coord);
    return program;
  };
  if (mode == Mode::train && given_)
    return apply(given_(coord, before_ ? before_->build(Mode::train, coord) : RankProgram{}), training_passes_);
  RankProgram program = base_program(*info_, mode, micro_batches(mode));
  program.precision = precision_;
  for (Action& action : program.actions) {
    if (!spans_mesh_ || role_of(action) != Role::scalars) continue;
    action.set_axes(names_of(coord.shape.axes(), &AxisSize::name));
    if (action.kind == Kinds::get().count) action.set_sample_axes({});
  }
  return apply(std::move(program), passes_);
}

std::set<std::string> Program::differing_axes() const {
  const MeshShape shape = coord().shape;
  std::set<std::string> all, axes;
  for (const AxisSize& axis : shape.axes()) all.insert(axis.name);
  if (is_given_by_rank_) return all;
  for (const auto& pass : passes_) {
    const auto named = pass->differs_along();
    if (!named) return all;
    axes.insert(named->begin(), named->end());
  }
  return axes;
}

std::vector<std::shared_ptr<const RankProgram>> Program::build_all(Mode mode) const {
  const MeshShape shape = coord().shape;
  const std::set<std::string> axes = differing_axes();
  std::map<std::vector<int>, std::shared_ptr<const RankProgram>> by_place;
  std::map<uint64_t, std::shared_ptr<const RankProgram>> distinct;
  std::vector<std::shared_ptr<const RankProgram>> programs;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const Coord coord{shape, rank};
    std::vector<int> place;
    for (const auto& axis : axes) place.push_back(coord[axis]);
    auto& program = by_place[place];
    if (!program) {
      program = std::make_shared<const RankProgram>(build(mode, coord));
      program = distinct.emplace(program->hash(), program).first->second;
    }
    programs.push_back(program);
  }
  return programs;
}

}  // namespace zt
