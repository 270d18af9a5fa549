// The verifier's inside: one check a subject, each a walk over one rank's program (the last over all ranks').
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zt/base/error.h"
#include "zt/comm/mesh.h"
#include "zt/program/program.h"

namespace zt::verifier {

struct Finding {
  int step;  // index of the action; -1: the program as a whole
  std::string reason;
};
using Findings = std::vector<Finding>;

template <class... Args>
void refuse(Findings& findings, int step, fmt::format_string<Args...> format, Args&&... args) {
  findings.push_back({step, fmt::format(format, std::forward<Args>(args)...)});
}

// One rank's program with what all checks need.
struct Subject {
  const ModelInfo& model;
  const MeshShape& mesh;
  const Program& program;
  std::vector<Resources> resources = {};  // by action; filled once the fields are known to be in range

  int size() const { return static_cast<int>(program.actions.size()); }
  const Action& action(int step) const { return program.actions[step]; }
  bool is_training() const { return program.mode == Mode::train; }
  bool is_sharded(int unit) const { return program.units[unit].state_sharded; }
  bool has_sharded_params(int unit) const { return program.units[unit].param_sharded; }
  std::string unit(int index) const { return fmt::format("unit {} ('{}')", index, model.units[index].name); }
  std::string position(int index) const { return fmt::format("position {} ('{}')", index, model.positions[index].name); }
  // "action 17 (REDUCE_GRAD 3)"
  std::string at(int step) const { return fmt::format("action {} ({})", step, action_text(program.actions[step])); }
};

// The kind declares nothing about a resource's index being in range, so that what a script declares is checked as well.
bool is_in_range(const Subject& subject, const Resource& resource);

// Kinds, targets, micro-batches, peers, attributes, unit plans: each action by itself. The other checks need it to pass.
void check_fields(const Subject& subject, Findings& findings);
// F, R, B and every other use of values: each once, in order, with what they read present.
void check_values(const Subject& subject, Findings& findings);
// COUNT, gradients, REDUCE_GRAD, NORM, STEP.
void check_gradients(const Subject& subject, Findings& findings);
// Full parameters: present and current when read and at the end.
void check_residency(const Subject& subject, Findings& findings);

struct RankFinding {
  int rank;
  Finding finding;
};
// All ranks of an axis make the same collectives in the same order, and no rank waits for ever.
std::vector<RankFinding> check_collectives(const ModelInfo& model, const MeshShape& mesh,
                                           const std::vector<const Program*>& programs);

// Equal in all fields; tensors and objects are equal when they are the same.
bool is_equal(const Action& a, const Action& b);
bool is_equal(const Program& a, const Program& b);

}  // namespace zt::verifier
