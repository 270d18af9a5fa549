// Kinds of actions: what an action of a kind refers to, what it reads and writes, and what it is for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zt/model/model.h"
#include "zt/model/unit.h"
#include "zt/program/resource.h"

namespace zt {

struct Action;
struct RankProgram;

using KindId = int32_t;

// The purpose of an action. Code that treats several kinds alike asks for the role, because modules and scripts add kinds.
enum class Role : uint8_t {
  other,      // anything else, such as statistics. Never run twice in a step
  scalars,    // numbers of the step on which all ranks agree: COUNT, NORM
  compute,    // runs a layer at a position and changes only values and gradients: F, R, B, I, W
  reduce,     // sums gradients over ranks
  residency,  // makes full parameters present, or frees them
  update,     // changes parameters and optimizer state
  transfer,   // moves values between ranks
  movement,   // moves data between memories of a rank, and changes no value
};
constexpr auto words_of(Role) {
  return std::array{"other", "scalars", "compute", "reduce", "residency", "update", "transfer", "movement"};
}

// One end of a message between two ranks. Messages of one channel arrive in the order in which they were sent; the actions at its
// two ends have the same target and micro-batch. A channel is given by its name, its sender and its receiver.
struct Message {
  std::string channel;            // "forward"
  std::vector<std::string> axes;  // mesh axes, joined in this order, over a group that both ranks belong to
  int peer = 0;                   // index of the other rank in this group
  bool is_send = false;
  int depth = 1;  // most messages under way: one more waits until the receiver has taken one. Equal at both ends
  auto operator<=>(const Message&) const = default;
};

// The work of an action on one rank.
struct Cost {
  double flops = 0;          // floating-point operations
  int64_t memory_bytes = 0;  // read from and written to the device's memory
  int64_t sent_bytes = 0;    // sent to other ranks: of ring algorithms, 2 (W - 1) / W of an all_reduce over W ranks
  int64_t file_read = 0, file_written = 0;  // bytes that it reads from files and writes to files
  int64_t copied = 0;                       // bytes that it copies between the memories of device and host
  int64_t host_memory_bytes = 0;            // read from and written to the host's memory by the host

  int64_t moved_bytes() const { return file_read + file_written + copied; }
};
// Data from which costs follow.
struct CostBasis {
  const ModelInfo& model;
  const RankProgram& program;
  const std::vector<Unit>& units;  // of the rank; buffers are not needed
  int64_t ranks = 1;               // of the action's communicator
  int64_t optimizer_states = 0;    // tensors of optimizer state per parameter
};

// Which attributes actions of a kind may have: a Kind::check. Their values are those that `check` lets pass.
struct AttributeRule {
  std::vector<std::string> attrs = {};
  bool only_in_training = false, needs_axes = false;
  std::function<void(const Action&, const RankProgram&)> check = {};

  void operator()(const Action& action, const RankProgram& program) const;
};

// A kind of action. Modules can register more kinds. All functions must be pure and thread-safe.
struct Kind {
  std::string name;  // upper case: "REDUCE_GRAD"
  Index target = Index::none;
  bool has_micro_batch = false;
  std::string doc;
  // Returns what an action of this kind reads and writes.
  std::function<Resources(const Action&, const ModelInfo&)> resources;
  Role role = Role::other;
  // Returns the communicators that an action uses, in order, each as the axes that it joins. Null means one over attrs.axes, or
  // none if the action has no such attribute.
  std::function<std::vector<std::vector<std::string>>(const Action&, const ModelInfo&)> axes = {};
  // Throws Misuse, with the reason, if the attributes do not fit the program; AttributeRule is such a check. Null means that all
  // are allowed.
  std::function<void(const Action&, const RankProgram&)> check = {};
  // Only the ranks that hold the target unit take part in its communication.
  bool among_holders = false;
  // Returns the message that an action sends or receives. Null means none.
  std::function<std::optional<Message>(const Action&)> message = {};
  // Returns the work of an action, except for layers, whose work is counted. Null means none.
  std::function<Cost(const Action&, const CostBasis&)> cost = {};
  // Returns the queue of the rank, such as "file", on which the work of an action runs beside the rank: works of a queue run one
  // after the other. An action with a queue has no communicators. Null or an empty name means none.
  std::function<std::string(const Action&)> queue = {};
};

// Registers a kind for the process and returns its id. A name that is registered already with the same declaration keeps its id.
// Two declarations are the same if target, has_micro_batch, role and the resources of one example action are equal; `doc` may
// differ. Throws Misuse if the name has another declaration, is not upper case, or `resources` is empty. Thread-safe, as are the
// functions below.
KindId register_kind(Kind kind);
const Kind& kind(KindId id);  // throws Misuse if there is no such kind; the reference stays valid
// Throws Misuse, with the nearest name, if there is no such kind.
KindId kind_id(const std::string& name);
std::vector<std::string> kind_names();

// Return what `kind(action.kind)` says of the action; the resources also those of the attribute `buffers`, and the owned parts
// that belong to what it declares: `shard` to master parameters, `grad_shard` to gradients that it does not
// compute.
Resources resources_of(const Action& action, const ModelInfo& model);
// Returns the buffers of passes that the attribute `buffers` names. Throws Misuse for a buffer that no action of this kind has,
// such as one of a unit for an action on a position.
std::vector<Resource> buffers_used(const Action& action, const ModelInfo& model);
Role role_of(const Action& action);
std::vector<std::vector<std::string>> communicators_of(const Action& action, const ModelInfo& model);
// Returns whether a run of the rank's program communicates, but for the counts of what the batch holds: if so, the ranks agree on
// whether it has failed.
bool communicates(const RankProgram& program, const ModelInfo& model);
std::optional<Message> message_of(const Action& action);
Cost cost_of(const Action& action, const CostBasis& basis);
std::string queue_of(const Action& action);

// The ids of the kinds that the SDK registers.
struct Kinds {
  KindId count, forward, backward, input_grad, weight_grad, recompute, reduce_tie, reduce_grad, replicate_grad, unshard, reshard,
      norm, step, update, gather_tensors, scatter_tensors, fetch, evict, fetch_value, evict_value;
  static const Kinds& get();
};

}  // namespace zt
