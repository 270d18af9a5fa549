// The plan of a program: the actions, memory and traffic of its ranks in a step. Nothing is allocated.
#pragma once

#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "execute/mesh_links.h"
#include "plan/rank_plan.h"
#include "plan/rehearsal/rehearsal.h"
#include "zt/base/value.h"
#include "zt/execute/executor.h"
#include "zt/model/kv_cache.h"
#include "zt/process/world.h"

namespace zt {

// Returns the communicator for control over all ranks of the program's mesh; null if there is one rank.
Communicator* control_of_all(const Program& program);

using AxesSet = std::set<std::vector<std::string>>;

// This rank's verified programs and what follows from them. Immutable, and pure but for `make`.
//
// Without an optimizer the plan has no training program, and the model is frozen. The main program is then that of `untrained`,
// otherwise that of training: units, holders, memory and times follow from it.
class Plan {
 public:
  // Builds the programs of all ranks and verifies them. Collective over the mesh. `optimizer` may be null; `program` must be
  // frozen then. Throws Misuse, on all ranks alike, with the verifier's refusals, or if the ranks built different programs or
  // multiply matrices by different providers. `cache`: the keys and values of each rank; null means none.
  static std::shared_ptr<const Plan> make(std::shared_ptr<const Program> program, std::shared_ptr<const Optimizer> optimizer,
                                          Mode untrained = Mode::eval, CacheBytes cache = {});

  const Program& program() const { return *program_; }
  const ModelInfo& model() const { return program_->info(); }
  const std::vector<NamedLayer>& layers() const { return program_->model()->positions(); }  // by position
  bool trains() const { return optimizer_ != nullptr; }
  Mode main_mode() const { return trains() ? Mode::train : untrained_; }
  std::vector<Mode> modes() const;  // that have a program, the main one first
  const RankProgram& main() const { return rank_program(main_mode()); }
  const RankProgram& rank_program(Mode mode) const;            // throws Misuse for a training program without an optimizer
  const RankUnits& rank_units() const { return rank_units_; }  // the units of this rank, without buffers
  const RankPlan& rank() const { return rank_; }               // of this rank
  // Returns the plan of the rank `coord`, which runs `program` with these units.
  RankPlan rank_plan(const RankProgram& program, const RankUnits& held, const Coord& coord) const;

  // The axes over which the global batch is spread: those of COUNT.
  const std::vector<std::string>& data_axes() const { return data_axes_; }
  int data_ranks() const;
  const AxesSet& joined_axes() const { return joined_; }  // over which the programs of any rank communicate
  // Returns the place in the global batch of the first of this rank's `samples` samples.
  int64_t first_sample(int64_t samples) const;

  // Returns how the ranks along these axes communicate; nothing without a mesh.
  AxisLink link(const std::vector<std::string>& axes) const;
  // Returns the communicator for control over all ranks; null if there is one rank.
  Communicator* world() const { return control_of_all(*program_); }
  // Returns this rank's place: among the others, and for messages.
  RankPlace place() const;
  RankPlace place_of(const Coord& coord) const;
  World world_place() const;

  // Returns this rank's part of a global batch as the micro-batches of a step, on device meta.
  std::vector<Batch> cut(const StepBatch& batch) const;
  // Rehearses this rank's step over these micro-batches (its part of a global batch, on device meta). Throws Misuse, naming the
  // layer, if one of its operators does not run on meta tensors.
  Rehearsal rehearsal(const std::vector<Batch>& micro_batches) const {
    return rehearse(inputs(micro_batches, program_->coord()), main(), rank_units_, program_->coord());
  }
  // Returns what a rehearsal needs of a rank over such micro-batches that receives values of the shapes that the rank `coord`
  // has.
  RehearsalInputs inputs(const std::vector<Batch>& micro_batches, const Coord& coord) const;
  // The main programs of all ranks; equal ones share one object.
  const std::vector<std::shared_ptr<const RankProgram>>& programs_of_ranks() const { return of_ranks_; }
  // The names of the optimizer's states; none without an optimizer.
  std::vector<std::string> state_names() const;
  int64_t optimizer_states() const { return static_cast<int64_t>(state_names().size()); }
  // Whether the optimizer updates tensors as a whole, so that the tensors of trained units have owners.
  bool owns_tensors() const;
  // The states of a parameter; none without an optimizer.
  std::vector<StateInfo> states_of(const ParamInfo& param) const;
  // Returns the units of a rank of the mesh, without buffers.
  RankUnits describe_rank(const Coord& coord) const;

 private:
  Plan(std::shared_ptr<const Program> program, std::shared_ptr<const Optimizer> optimizer, Mode untrained, CacheBytes cache)
      : program_(std::move(program)), optimizer_(std::move(optimizer)), untrained_(untrained), cache_(std::move(cache)) {}
  std::vector<std::shared_ptr<const RankProgram>> verified_programs(Mode mode) const;
  void check_units_alike() const;
  void set_holders(std::vector<Unit>& units, const Coord& coord) const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const Optimizer> optimizer_;
  Mode untrained_;
  CacheBytes cache_;
  std::array<std::shared_ptr<const RankProgram>, kModes.size()> programs_;  // of this rank, by mode
  std::vector<std::shared_ptr<const RankProgram>> of_ranks_;
  AxesSet joined_;
  std::vector<std::string> data_axes_;
  RankUnits rank_units_;
  RankPlan rank_;
};

}  // namespace zt
