// The program of one rank: its list of actions for a step. Plain data, built before anything runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "zt/base/object.h"
#include "zt/base/value.h"
#include "zt/comm/mesh.h"
#include "zt/model/layer.h"
#include "zt/model/model.h"
#include "zt/model/precision.h"
#include "zt/model/unit.h"
#include "zt/program/kind.h"
#include "zt/program/pass_buffer.h"

namespace zt {

// Which part of the step's gradient a REDUCE_GRAD sums over the ranks: all of it, or, if each micro-batch is reduced by itself,
// that of the first, of a middle or of the last micro-batch.
enum class GradientPart : uint8_t { whole, first, middle, last };

// What an F keeps for the backward: the autograd graph with all its values, only its inputs, or nothing.
enum class Keep : uint8_t { graph, inputs, none };

// One entry of a program. Attributes of the known kinds:
//   axes    mesh axes to communicate along, joined in this order
//   samples COUNT: those of `axes` along which ranks have different samples; absent: all
//   keep    F: what is kept for the backward: "graph" (default), "inputs" or "none"
//   units   REDUCE_GRAD, REPLICATE_GRAD, UNSHARD: the other units of a bucket, besides the target
//   sum     REDUCE_GRAD: "first", "middle" or "last", its GradientPart; absent for the whole gradient
//   dtype   REDUCE_GRAD: the type in which gradients are sent, if it is not the type in which they are summed: "bf16"
//   part, parts   STEP, FETCH, EVICT: slice number `part`, counted from 0, of `parts` slices of the owned part (model/home.h)
//   staged  STEP: true if GATHER_TENSORS has brought the unit's tensors to the ranks that update them whole
//   what    FETCH, EVICT: the UnitData that they move: "state", in slices, or "grads" or "params", in slices or all of it;
//           FETCH_VALUE, EVICT_VALUE: the StepData: "value" or "graph"
//   master  FETCH, EVICT: true if master parameters are with it, because they have memory of their own
//   home    kinds that move data: the tier in which the data lie between their uses: "host" or "file"
//   memory  STEP: "host" if it works in the host's memory. FETCH, EVICT: "host" if the slice comes there, and not to the device's
//           memory, because its STEP works there
//   slot    kinds that move data: the number of the place in memory, of at most kMostSlots
//   fresh   FETCH: true if nothing is read, because what comes next writes all of it
//   unchanged  EVICT: true if nothing has changed the data, so that their home has them already
//   summed  EVICT: true for a gradient that is summed in the unit's own buffer: it is copied from there to the slot
//   squares EVICT: the axes of NORM, if the gradient is complete: its squares are added to the norm, before it leaves
//   least   EVICT_VALUE: the bytes of the smallest tensor that leaves; smaller ones stay
//   wait    true: the executor waits for the action's work before the next action, without overlap
// and of any kind:
//   buffers the names of buffers of passes that the action reads and writes: those of its units, its position, its layer, the run
//   sent    the bytes that it sends to other ranks, if these are not those of its kind
struct Action {
  KindId kind = 0;
  int32_t target = -1;       // a position or a unit, depending on the kind; -1: none
  int32_t micro_batch = -1;  // -1: none
  Value::Table attrs = {};

  // Return the attribute, or `otherwise` if it is absent. Throw Misuse if it has another type.
  std::string attr(const std::string& name, const std::string& otherwise = "") const;
  int64_t number(const std::string& name, int64_t otherwise) const;
  bool flag(const std::string& name) const;      // false if it is absent
  std::vector<std::string> axes() const;         // attrs.axes; empty if it is absent
  std::vector<std::string> sample_axes() const;  // attrs.samples, or else axes()
  bool is_in_host_memory() const;                // attrs.memory is "host"; throws Misuse for another word than "device"
  std::vector<std::string> norm_axes() const;    // attrs.squares; empty if it is absent
  UnitData unit_data() const;                    // attrs.what of FETCH and EVICT; throws Misuse for an unknown word
  StepData step_data() const;                    // attrs.what of FETCH_VALUE and EVICT_VALUE; throws Misuse as unit_data
  void set_axes(const std::vector<std::string>& axes);
  void set_sample_axes(const std::vector<std::string>& axes);  // removes the attribute if these are the axes
  Keep keep() const;                                           // from attrs.keep; throws Misuse as gradient_part
  GradientPart gradient_part() const;  // from attrs.sum; throws Misuse, with the nearest name, for an unknown word
  void set_gradient_part(GradientPart part);
  std::vector<int> units() const;            // target, then attrs.units; for kinds whose target is a unit
  std::vector<std::string> buffers() const;  // attrs.buffers; empty if it is absent
};

// The most places in memory for data that FETCH brings.
inline constexpr int kMostSlots = 1024;

// All that one rank does in a step. A Program builds one for each rank.
struct RankProgram {
  Mode mode = Mode::train;
  int micro_batches = 1;
  std::vector<UnitPlan> units;  // one per unit of the model
  // Mesh axes along which ranks run different positions: the ranks of a group along them together run each position once per
  // micro-batch. A rank runs the positions that have an F in its program. Empty: each rank runs all positions.
  std::vector<std::string> split_axes = {};
  std::vector<Action> actions;
  Precision precision = {};
  int64_t max_live = 0;                  // most elements of sharded parameters that are whole at the same time; 0: no bound
  std::vector<PassBuffer> buffers = {};  // of passes, on this rank
  bool is_on_device = false;             // the rank's device has memory of its own (AxisLink::is_on_device). Not in the text

  // Returns the buffer of a pass; null if there is none.
  const PassBuffer* find_buffer(ResourceId type, int32_t index) const;

  // Returns the program as text with one action per line: "F 1 0 keep=inputs". `parse` reads it. Attribute values are JSON.
  std::string text() const;
  // Throws Misuse, with the number of the line, if a line is wrong.
  static RankProgram parse(const std::string& text);
  uint64_t hash() const;
};
// Returns which data of a unit, that may lie elsewhere, the resource is. Master parameters without memory of their own are
// parameters.
std::optional<UnitData> unit_data_of(const Resource& resource, const Precision& precision);

// Returns, by position of the model, whether the program runs it.
std::vector<bool> positions_run(const RankProgram& program, const ModelInfo& model);

// Returns whether data of a step leave the memory: whether it has an EVICT_VALUE.
bool moves_values(const RankProgram& program);

// Replaces each STEP without slices by one for each slice into which its unit is cut (UnitPlan::slices).
void slice_steps(RankProgram& program);

// Inserts actions before and after those of the program. Both lists are by action.
void insert_around(RankProgram& program, std::vector<std::vector<Action>> before, std::vector<std::vector<Action>> after);

std::string action_text(const Action& action);
Action parse_action(const std::string& line);

// Returns the program of a single rank, nothing sharded: COUNT, F and B of every position for each micro-batch in turn, NORM,
// STEP of every trainable unit, and UPDATE of every position whose layer has buffers to update. Evaluation has no B and STEP;
// generation has F only. Throws Misuse if micro_batches < 1.
RankProgram base_program(const ModelInfo& model, Mode mode, int micro_batches);

// Passes run in the order of their phases.
enum class Phase : uint8_t { structure, compute, residency, reduction, overlap, movement };
constexpr auto words_of(Phase) {
  return std::array{"structure", "compute", "residency", "reduction", "overlap", "movement"};
}
inline Phase parse_phase(const std::string& name) {
  return parse_word<Phase>(name, "unknown phase");
}
inline std::string phase_name(Phase phase) {
  return word_of(phase);
}

class ActionHandler;
class Homes;
class Optimizer;
struct HomeNeeds;

// A pure function from program to program, so that any rank can build the program of every rank.
class Pass {
 public:
  virtual ~Pass();
  virtual std::string name() const = 0;                   // "zero.shard": for messages and reports
  virtual std::string summary() const { return name(); }  // for titles: the name with what matters most, "zero.shard stage 1"
  virtual Phase phase() const = 0;
  // Returns the changed program of the rank `coord`. Throws Misuse if the pass does not fit the program.
  virtual RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const = 0;
  // Returns the mesh axes along which the programs of ranks may differ after this pass. nullopt means all axes.
  virtual std::optional<std::vector<std::string>> differs_along() const { return std::nullopt; }
  // Returns the mesh that the pass uses, or null.
  virtual std::shared_ptr<Mesh> mesh() const { return nullptr; }
  // Returns the handlers that run, on this rank, the kinds of action that the pass inserts.
  virtual std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const { return {}; }
  // Returns handlers that run known kinds in the place of those that do so otherwise, in this program only. They keep what the
  // kind's resources and comments promise.
  virtual std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> replacements() const { return {}; }
  // Returns the pass for a trainer with this optimizer; null if it is this one. What moves depends on how much state there is.
  virtual std::shared_ptr<Pass> for_optimizer(const std::shared_ptr<const Optimizer>&) const { return nullptr; }
  // Returns the memories of this rank for data that lie elsewhere; null if the pass moves no data. Called once for each trainer.
  virtual std::shared_ptr<Homes> make_homes(const HomeNeeds&) const { return nullptr; }
  // Returns whether its handlers need StepState::grad_divisor before the end of a step by hand, which could change it.
  virtual bool fixes_divisor() const { return false; }
};

// An error in the program of a rank.
struct Refusal {
  int rank = 0;
  int step = -1;  // index of the action; -1: the program as a whole
  std::string reason;
  std::string action = {};   // text of the action; empty for the program as a whole
  std::string text() const;  // "rank 1, action 17 (REDUCE_GRAD 3): ..."
};
// Checks the programs of all ranks of a mesh, before any tensor is allocated. `programs[r]` is the program of rank r; ranks may
// share one object. Returns the errors, at most `limit`, sorted by rank and step. Throws Misuse if there is not one program per
// rank.
std::vector<Refusal> verify(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs,
                            size_t limit = 20);

ZT_OBJECT(Pass)

}  // namespace zt
