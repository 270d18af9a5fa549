// A training step of one rank as a list of actions: plain data, built before anything runs.
#pragma once

#include <cstdint>
#include <functional>
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

namespace zt {

using KindId = int32_t;

// Something an action reads or writes. Works in flight are waited for by resource.
enum class ResourceKind : uint8_t {
  param,       // index: unit. The full parameters
  master,      // index: unit. The owned part the optimizer updates; who writes it rounds it: Unit::round_master
  grad,        // index: unit. Gradient of the parameters
  state,       // index: unit. Optimizer state
  value,       // index: position. Its outputs and its graph for one micro-batch
  value_grad,  // index: position. The gradient of its outputs for one micro-batch
  scalars,     // counts, norm and loss of the step
};
struct Resource {
  ResourceKind kind = ResourceKind::param;
  int32_t index = 0;
  int32_t micro_batch = -1;  // -1 where it has no meaning
  auto operator<=>(const Resource&) const = default;
};
struct Resources {
  std::vector<Resource> reads, writes;
};

// Which part of the step's gradient a REDUCE_GRAD sums, where each micro-batch is reduced by itself.
enum class GradientPart : uint8_t { whole, first, middle, last };

// One instruction. Attributes in use: keep = "graph" | "inputs" | "none" (F), axes = list of mesh axes it communicates on,
// joined in this order, units = further units of a bucket (REDUCE_GRAD, UNSHARD), sum = "first" | "middle" | "last"
// (REDUCE_GRAD: its GradientPart, absent for the whole gradient), dtype = "bf16" and so on
// (REDUCE_GRAD: what it is sent in, where that is not what it is summed in), part = i, parts = n (STEP: the i-th of n slices of
// the owned part, from 0), wait = true (what communicates: it is waited for where it stands, so nothing runs beside it).
struct Action {
  KindId kind = 0;
  int32_t target = -1;       // a position or a unit, by the kind; -1: none
  int32_t micro_batch = -1;  // -1: none
  int32_t peer = -1;         // a rank; -1: none
  Value::Table attrs = {};

  std::string attr(const std::string& name, const std::string& otherwise = "") const;
  int64_t number(const std::string& name, int64_t otherwise) const;
  bool flag(const std::string& name) const;  // false where it is absent
  std::vector<std::string> axes() const;
  GradientPart gradient_part() const;  // of attrs.sum; Misuse with the nearest name for another word
  void set_gradient_part(GradientPart part);
  std::vector<int> units() const;  // target and attrs.units: the units of a kind whose target is a unit
};

enum class Target : uint8_t { none, position, unit };

// What a kind of action is. Kinds are an open set.
struct Kind {
  std::string name;  // upper case: "REDUCE_GRAD"
  Target target = Target::none;
  bool has_micro_batch = false;
  std::string doc;
  std::function<Resources(const Action&, const ModelInfo&)> resources;
};

// Thread-safe. Registering a known name again with the same declaration returns its id. Two declarations are the same if target,
// has_micro_batch and the resources of one example action are equal; `doc` may differ. Misuse for another declaration.
KindId register_kind(Kind kind);
const Kind& kind(KindId id);
// Misuse with the nearest name if there is none.
KindId kind_id(const std::string& name);
std::vector<std::string> kind_names();

// The kinds every program knows.
struct Kinds {
  KindId count, forward, backward, recompute, reduce_grad, replicate_grad, unshard, reshard, norm, step;
  static const Kinds& get();
};

struct Program {
  Mode mode = Mode::train;
  int micro_batches = 1;
  std::vector<UnitPlan> units;  // one a unit of the model
  std::vector<Action> actions;
  Precision precision = {};
  int64_t max_live = 0;  // elements of sharded parameters that may be whole at once; 0: no bound

  // One action a line: "F 1 0 keep=inputs"; `parse` reads it back. Attribute values are JSON.
  std::string text() const;
  // Misuse with the line number.
  static Program parse(const std::string& text);
  uint64_t hash() const;
};
std::string action_text(const Action& action);
Action parse_action(const std::string& line);

// F and B of every position, micro-batches in order, then NORM and STEP: one rank, nothing sharded.
Program base_program(const ModelInfo& model, Mode mode, int micro_batches);

enum class Phase : uint8_t { structure, compute, residency, reduction, overlap };
Phase parse_phase(const std::string& name);
std::string phase_name(Phase phase);

class ActionHandler;

// A pure function from programs to programs: any rank can build any rank's list.
class Pass {
 public:
  virtual ~Pass();
  virtual std::string name() const = 0;  // "zero.shard": for messages and reports
  virtual Phase phase() const = 0;
  virtual Program apply(Program program, const ModelInfo& model, const Coord& coord) const = 0;
  // The mesh axes along which ranks' programs differ; nothing: along any.
  virtual std::optional<std::vector<std::string>> differs_along() const { return std::nullopt; }
  // The mesh its axes belong to; nullptr when it uses none.
  virtual std::shared_ptr<Mesh> mesh() const { return nullptr; }
  // Who runs the kinds of action it inserts, for this rank.
  virtual std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const { return {}; }
};

// Refuses or accepts the programs of all ranks of a mesh before a tensor is allocated.
struct Refusal {
  int rank = 0;
  int step = -1;  // index of the action; -1: the program as a whole
  std::string reason;
  std::string action = {};   // the action's text; empty for the program as a whole
  std::string text() const;  // "rank 1, action 17 (REDUCE_GRAD 3): ..."
};
// `programs[r]` is rank r's program (ranks may share one object). All refusals, at most `limit`, ranks and steps ascending.
std::vector<Refusal> verify(const ModelInfo& model, const MeshShape& mesh, const std::vector<const Program*>& programs,
                            size_t limit = 20);

ZT_OBJECT(Pass)

}  // namespace zt
