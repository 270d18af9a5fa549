#include "zt/program_spec.h"

#include <algorithm>
#include <map>

#include "zt/error.h"

namespace zt {

ZT_DEFINE_OBJECT(ProgramSpec, "Program")

Precision parse_precision(const std::string& name) {
  const std::vector<std::string> names{"fp32", "fp64"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Precision>(i);
  }
  misuse("unknown precision '{}'{}", name, suggest(name, names));
}

at::ScalarType dtype_of(Precision precision) {
  return precision == Precision::fp64 ? at::kDouble : at::kFloat;
}

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
  if (mode == Mode::train && actions_) program.actions = *actions_;
  for (const auto& pass : passes_) program = pass->apply(std::move(program), model_->info(), coord);
  return program;
}

std::vector<std::shared_ptr<const Program>> ProgramSpec::build_all(Mode mode) const {
  const MeshShape shape = coord().shape;
  std::map<uint64_t, std::shared_ptr<const Program>> distinct;
  std::vector<std::shared_ptr<const Program>> programs;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    Program program = build(mode, {shape, rank});
    auto& held = distinct[program.hash()];
    if (!held) held = std::make_shared<const Program>(std::move(program));
    programs.push_back(held);
  }
  return programs;
}

}  // namespace zt
