// A program: one step of every rank, described by a model, the number of micro-batches, a precision and passes. `build` returns
// the list of actions of any rank.
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
#include "zt/program/rank_program.h"

namespace zt {

// Immutable: `apply`, `replace`, `with_actions`, `with_program` and the like return a new Program.
class Program {
 public:
  // `eval_micro_batches`: of evaluation and generation. Throws Misuse if a number of micro-batches is below 1.
  Program(std::shared_ptr<Model> model, int micro_batches, Precision precision, int eval_micro_batches = 1);

  // Returns this program over a mesh, without a pass that brings one. Until a pass says otherwise, all its ranks have the same
  // samples. Throws Misuse if a pass has brought another mesh.
  std::shared_ptr<Program> on_mesh(std::shared_ptr<Mesh> mesh) const;
  // Adds a pass. Throws Misuse if it uses another mesh than the program or an earlier pass.
  std::shared_ptr<Program> apply(std::shared_ptr<Pass> pass) const;
  // Puts a pass in the place of one of passes(). Throws Misuse if the training program was given by with_actions or with_program,
  // because its actions would not change.
  std::shared_ptr<Program> replace(const std::shared_ptr<Pass>& pass, std::shared_ptr<Pass> by) const;
  // Replace the training program of every rank, as the passes so far build it: its actions only, or the whole program (for
  // example one that RankProgram::parse has read). The passes so far still build the programs of evaluation and generation, and
  // still provide the handlers. Passes that are applied later change the given program. with_program throws Misuse if the
  // program's mode is not train or if it has another number of units than the model.
  std::shared_ptr<Program> with_actions(std::vector<Action> actions) const;
  std::shared_ptr<Program> with_program(RankProgram program) const;
  // The same with one list or program per rank of the mesh, by rank: the ranks of a pipeline have different ones. Throw Misuse
  // for another number of them. Where ranks run different positions, the functions above throw Misuse, which says so.
  std::shared_ptr<Program> with_actions_by_rank(std::vector<std::vector<Action>> actions) const;
  std::shared_ptr<Program> with_programs(std::vector<RankProgram> programs) const;

  // Returns this program for a trainer with this optimizer (Pass::for_optimizer).
  std::shared_ptr<const Program> for_optimizer(const std::shared_ptr<const Optimizer>& optimizer) const;
  // Returns this program for a trainer without an optimizer: all parameters are frozen. Throws Misuse if a training program was
  // given.
  std::shared_ptr<Program> frozen() const;

  // Returns this program, whose trainer gives gradients with respect to these fields of the batch (Trainer::input_gradients).
  std::shared_ptr<Program> with_input_gradients(std::vector<std::string> fields) const;
  const std::vector<std::string>& input_gradients() const { return input_gradients_; }

  const std::shared_ptr<Model>& model() const { return model_; }
  // The model as it was when the program was made: later calls of Model::set_trainable do not change it.
  const ModelInfo& info() const { return *info_; }
  int micro_batches() const { return micro_batches_; }
  int micro_batches(Mode mode) const { return mode == Mode::train ? micro_batches_ : eval_micro_batches_; }
  const Precision& precision() const { return precision_; }
  const std::vector<std::shared_ptr<Pass>>& passes() const { return passes_; }  // in the order of phases
  const std::shared_ptr<Mesh>& mesh() const { return mesh_; }                   // null if the program has none
  Coord coord() const;                                                          // of this rank; rank 0 of 1 without a mesh

  // Returns the program of the rank `coord`. Throws what a pass throws.
  RankProgram build(Mode mode, const Coord& coord) const;
  // Returns the programs of all ranks of the mesh. Ranks with equal programs share one object.
  std::vector<std::shared_ptr<const RankProgram>> build_all(Mode mode) const;

 private:
  std::set<std::string> differing_axes() const;
  void check_unsplit(const std::vector<std::string>& split_axes, const char* what) const;
  void check_number(size_t given, const char* what) const;

  std::shared_ptr<Model> model_;
  std::shared_ptr<const ModelInfo> info_;
  int micro_batches_, eval_micro_batches_;
  Precision precision_;
  std::vector<std::shared_ptr<Pass>> passes_;
  // Returns the given training program, to which training_passes_ are applied. If empty, the training program is built as in the
  // other modes: from the model, by passes_.
  std::function<RankProgram(const Coord&, RankProgram before)> given_;
  std::shared_ptr<const Program> before_;  // the program whose actions are replaced; null if whole programs were given
  std::vector<std::shared_ptr<Pass>> training_passes_;  // passes applied after the program was given
  bool is_given_by_rank_ = false;
  std::shared_ptr<Mesh> mesh_;
  bool spans_mesh_ = false;                   // COUNT and NORM sum over all ranks of the mesh from the first on
  std::vector<std::string> input_gradients_;  // names of fields
};

ZT_OBJECT(Program)

}  // namespace zt
