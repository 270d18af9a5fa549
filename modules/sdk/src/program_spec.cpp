#include "zt/program_spec.h"

#include <algorithm>
#include <map>

#include "zt/error.h"

namespace zt {

ZT_DEFINE_OBJECT(ProgramSpec, "Program")

ProgramSpec::ProgramSpec(std::shared_ptr<Model> model, int micro_batches, Precision precision)
    : model_(std::move(model)), micro_batches_(micro_batches), precision_(precision) {
  if (micro_batches < 1) misuse("a program needs at least one micro-batch, got {}", micro_batches);
}

std::shared_ptr<ProgramSpec> ProgramSpec::apply(std::shared_ptr<Pass> pass) const {
  auto next = std::make_shared<ProgramSpec>(*this);
  if (const auto mesh = pass->mesh()) {
    if (next->mesh_ && next->mesh_ != mesh) {
      misuse("the pass {} uses the mesh {}, an earlier pass the mesh {}: take all axes of a program from one mesh", pass->name(),
             mesh->shape().text(), next->mesh_->shape().text());
    }
    next->mesh_ = mesh;
  }
  const auto later = std::find_if(next->passes_.begin(), next->passes_.end(),
                                  [&](const std::shared_ptr<Pass>& other) { return other->phase() > pass->phase(); });
  next->passes_.insert(later, std::move(pass));
  return next;
}

std::shared_ptr<ProgramSpec> ProgramSpec::with_actions(std::vector<Action> actions) const {
  auto next = std::make_shared<ProgramSpec>(*this);
  next->actions_ = std::move(actions);
  return next;
}

Coord ProgramSpec::coord() const {
  return mesh_ ? mesh_->coord() : Coord{MeshShape({}, 1), 0};
}

Program ProgramSpec::build(Mode mode, const Coord& coord) const {
  Program program = base_program(model_->info(), mode, mode == Mode::train ? micro_batches_ : 1);
  program.precision = precision_;
  if (mode == Mode::train && actions_) program.actions = *actions_;
  for (const auto& pass : passes_) program = pass->apply(std::move(program), model_->info(), coord);
  return program;
}

std::set<std::string> ProgramSpec::differing_axes() const {
  const MeshShape shape = coord().shape;
  std::set<std::string> axes;
  for (const auto& pass : passes_) {
    if (const auto named = pass->differs_along()) {
      axes.insert(named->begin(), named->end());
    } else {
      for (const AxisSize& axis : shape.axes()) axes.insert(axis.name);
    }
  }
  return axes;
}

std::vector<std::shared_ptr<const Program>> ProgramSpec::build_all(Mode mode) const {
  const MeshShape shape = coord().shape;
  const std::set<std::string> axes = differing_axes();
  std::map<std::vector<int>, std::shared_ptr<const Program>> by_place;
  std::map<uint64_t, std::shared_ptr<const Program>> distinct;
  std::vector<std::shared_ptr<const Program>> programs;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const Coord coord{shape, rank};
    std::vector<int> place;
    for (const auto& axis : axes) place.push_back(coord[axis]);
    auto& program = by_place[place];
    if (!program) {
      program = std::make_shared<const Program>(build(mode, coord));
      program = distinct.emplace(program->hash(), program).first->second;
    }
    programs.push_back(program);
  }
  return programs;
}

}  // namespace zt
