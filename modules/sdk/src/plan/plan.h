// The plan of a program: the actions, memory and traffic of its ranks in a step. Nothing is allocated.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plan/rank_plan.h"
#include "plan/rehearsal.h"
#include "zt/base/value.h"
#include "zt/execute/executor.h"
#include "zt/process/world.h"

namespace zt {

// Returns ascending numbers as text: "0-511" or "0, 4, 8".
std::string ranges_text(const std::vector<int>& numbers);

// Returns the communicator for control over all ranks of the program's mesh; null if there is one rank.
Communicator* control_of_all(const ProgramSpec& spec);

// This rank's verified programs and what follows from them. Immutable: all functions but `make` are pure.
class Plan {
 public:
  // Builds the programs of all ranks and verifies them. Collective over the mesh. Throws Misuse, on all ranks alike, with the
  // verifier's refusals, or if the ranks built different programs or multiply matrices by different providers.
  static std::shared_ptr<const Plan> make(std::shared_ptr<const ProgramSpec> spec, std::shared_ptr<const Optimizer> optimizer);

  const ProgramSpec& spec() const { return *spec_; }
  const Model& model() const { return *spec_->model(); }
  const Program& program(Mode mode) const { return *programs_[static_cast<size_t>(mode)]; }
  const RankUnits& held() const { return held_; }  // the units of this rank, without buffers
  const RankPlan& rank() const { return rank_; }   // of this rank

  // The axes over which the global batch is spread: those of COUNT.
  const std::vector<std::string>& data_axes() const { return data_axes_; }
  int data_ranks() const;
  // Returns the place in the global batch of the first of this rank's `samples` samples.
  int64_t first_sample(int64_t samples) const;

  // Return the communicators of these axes for data and for control, as in Axis. Throw Misuse without a mesh.
  Communicator& comm(const std::vector<std::string>& axes) const;
  Communicator& control(const std::vector<std::string>& axes) const;
  // Returns how the ranks along these axes communicate; nothing without a mesh.
  AxisLink link(const std::vector<std::string>& axes) const;
  // Returns the communicator over the axes that shard the unit.
  Communicator& axis_of(const Unit& unit) const;
  // Returns the communicator over the ranks that hold the unit, of this rank's group along the program's split_axes.
  Communicator& comm_of_holders(const Unit& unit) const;
  // Returns this rank's end of the message's channel.
  Channel& channel(const Message& message) const;
  // As Trainer's function of this name.
  std::vector<std::string> idle_axes() const;
  // Returns the communicator for control over all ranks; null if there is one rank.
  Communicator* world() const { return control_of_all(*spec_); }
  // Returns this rank's place, for messages.
  World place() const;

  // Rehearses this rank's training step over these micro-batches (its part of a global batch, on device meta). Throws Misuse,
  // naming the layer, if one of its operators does not run on meta tensors.
  Rehearsal rehearsal(const std::vector<Batch>& micro_batches) const;
  // Returns the bytes that this rank sends in such a step, by kind of action, and by kind of layer what layers send.
  std::map<std::string, int64_t> sent(const Rehearsal& rehearsed) const;
  // The training programs of all ranks; equal ones share one object.
  const std::vector<std::shared_ptr<const Program>>& training_programs() const { return training_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  // Returns the units of a rank of the mesh, without buffers.
  RankUnits describe_rank(const Coord& coord) const;
  // Returns the shapes of all values if one of the ranks receives some; else nothing. `micro_batches`: a rank's part of a
  // global batch, on device meta.
  ValueShapes shapes(const std::vector<Batch>& micro_batches) const;
  // Rehearses a step of a rank, which holds `held`. `values`: shapes(micro_batches).
  Rehearsal rehearsal(const Program& training, const RankUnits& held, const std::vector<Batch>& micro_batches,
                      const ValueShapes& values) const;

  // Returns one entry for each kind of rank: {ranks = "0-511", count, memory, actions, sent, assumptions}: tables by kind, and a
  // list of sentences about layers.
  // `batch`: each rank's part of a global batch.
  Value of_all_ranks(const StepBatch& batch) const;

 private:
  Plan(std::shared_ptr<const ProgramSpec> spec, std::shared_ptr<const Optimizer> optimizer)
      : spec_(std::move(spec)), optimizer_(std::move(optimizer)) {}
  std::vector<std::shared_ptr<const Program>> verified_programs(Mode mode) const;
  std::set<std::vector<std::string>> joined_axes(const std::vector<std::shared_ptr<const Program>>& programs) const;
  std::set<std::vector<std::string>> axes_of_work(const std::vector<std::shared_ptr<const Program>>& programs) const;
  std::shared_ptr<Axis> axis(const std::vector<std::string>& axes) const;
  void check_units_alike() const;
  void check_gemm_alike() const;
  Stage stage(const std::vector<Batch>& micro_batches) const;
  std::shared_ptr<Channel> open_channel(const Message& message) const;
  void make_channels();
  void set_holders(std::vector<Unit>& units, const Coord& coord) const;

  std::shared_ptr<const ProgramSpec> spec_;
  std::shared_ptr<const Optimizer> optimizer_;
  std::array<std::shared_ptr<const Program>, kModes.size()> programs_;  // of this rank, by mode
  std::vector<std::shared_ptr<const Program>> training_;                // of all ranks
  std::vector<std::string> data_axes_;
  std::map<Message, std::shared_ptr<Channel>> channels_;  // of this rank's programs
  RankUnits held_;
  RankPlan rank_;
};

}  // namespace zt
