// What a program is made from: a model, micro-batches, a precision and passes. `build` gives any rank's list.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/comm/mesh.h"
#include "zt/model/model.h"
#include "zt/model/precision.h"
#include "zt/program/program.h"

namespace zt {

// Immutable: `apply`, `with_actions` and `with_program` return a further one.
class ProgramSpec {
 public:
  ProgramSpec(std::shared_ptr<Model> model, int micro_batches, Precision precision);

  // Adds a pass. Misuse when its mesh is another one than an earlier pass's.
  std::shared_ptr<ProgramSpec> apply(std::shared_ptr<Pass> pass) const;
  // Replace what the passes so far have made of the training program, on every rank: its list of actions, or all of it (such as
  // what Program::parse has read). These passes go on making the programs of evaluation and generation and bring the handlers;
  // passes that are applied later apply to what is given here. Misuse where a program is not one of training, or has another
  // number of units than the model.
  std::shared_ptr<ProgramSpec> with_actions(std::vector<Action> actions) const;
  std::shared_ptr<ProgramSpec> with_program(Program program) const;

  const std::shared_ptr<Model>& model() const { return model_; }
  int micro_batches() const { return micro_batches_; }
  const Precision& precision() const { return precision_; }
  const std::vector<std::shared_ptr<Pass>>& passes() const { return passes_; }  // in the order of phases
  const std::shared_ptr<Mesh>& mesh() const { return mesh_; }                   // nullptr: no pass uses one
  Coord coord() const;                                                          // this rank's; rank 0 of 1 without a mesh

  Program build(Mode mode, const Coord& coord) const;
  // The programs of all ranks of the mesh; ranks whose programs are equal share one object.
  std::vector<std::shared_ptr<const Program>> build_all(Mode mode) const;

 private:
  std::set<std::string> differing_axes() const;

  std::shared_ptr<Model> model_;
  int micro_batches_;
  Precision precision_;
  std::vector<std::shared_ptr<Pass>> passes_;
  // The training program is what `given_` returns, then `training_passes_`. Empty: as in the other modes, from the model and
  // passes_.
  std::function<Program(const Coord&)> given_;
  std::vector<std::shared_ptr<Pass>> training_passes_;  // those applied since the program was given
  std::shared_ptr<Mesh> mesh_;
};

ZT_OBJECT(ProgramSpec)

}  // namespace zt
