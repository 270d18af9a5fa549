// The checks of the verifier. Each walks over the program of one rank, check_stages over those of all ranks.
#pragma once

#include <string>
#include <vector>

#include "zt/base/error.h"
#include "zt/comm/mesh.h"
#include "zt/program/rank_program.h"

namespace zt::verifier {

using Findings = std::vector<Refusal>;

// Return a list of axes for a message: 'dp' or 'dp' and 'ep', and ["dp","ep"] as in a program's text.
std::string joined(const std::vector<std::string>& axes);
std::string as_list(const std::vector<std::string>& axes);

// One rank's program, and the data that all checks need.
struct Subject {
  const ModelInfo& model;
  const MeshShape& mesh;
  const RankProgram& program;
  int rank;
  std::vector<Resources> resources = {};  // by action; filled after check_fields has passed

  int size() const { return static_cast<int>(program.actions.size()); }
  const Action& action(int step) const { return program.actions[step]; }
  bool is_training() const { return program.mode == Mode::train; }
  bool is_sharded(int unit) const { return program.units[unit].state == Residence::sharded; }
  bool has_sharded_params(int unit) const { return program.units[unit].params == Residence::sharded; }
  // Returns whether this rank has a gradient of the unit.
  bool is_trained(int unit) const { return model.units[unit].trainable && program.units[unit].held; }
  std::string unit(int index) const { return fmt::format("unit {} ('{}')", index, model.units[index].name); }
  std::string position(int index) const { return fmt::format("position {} ('{}')", index, model.positions[index].name); }
  // "action 17 (REDUCE_GRAD 3)"
  std::string at(int step) const { return fmt::format("action {} ({})", step, action_text(program.actions[step])); }
};

// Adds a finding.
template <class... Args>
void refuse(const Subject& subject, Findings& findings, int step, fmt::format_string<Args...> format, Args&&... args) {
  findings.push_back({subject.rank, step, fmt::format(format, std::forward<Args>(args)...)});
}

// A base of the checks that walk over the program of one rank.
class RankCheck {
 protected:
  RankCheck(const Subject& subject, Findings& findings) : subject_(subject), findings_(findings) {}
  template <class... Args>
  void say(int step, fmt::format_string<Args...> format, Args&&... args) {
    refuse(subject_, findings_, step, format, std::forward<Args>(args)...);
  }

  const Subject& subject_;
  Findings& findings_;
};

// Returns whether the model and the program have the index and the micro-batch of a resource. The functions of kinds do not check
// this, and scripts declare kinds, too.
bool is_in_range(const Subject& subject, const Resource& resource);

// Checks unit plans, and of each action by itself kind, target, micro-batch, peer and attributes. The other checks require that
// this one has passed.
void check_fields(const Subject& subject, Findings& findings);
// Checks that F, R and B occur once per position and micro-batch and in order, and that all values that actions read are present.
void check_values(const Subject& subject, Findings& findings);
// Checks COUNT, gradients, REDUCE_GRAD, REPLICATE_GRAD and NORM.
void check_gradients(const Subject& subject, Findings& findings);
// Checks that slices that lie elsewhere are in memory when an action touches them, each in a place of its own, and at home at the
// end.
void check_movement(const Subject& subject, Findings& findings);
// Checks that values and graphs that leave the memory are there when they leave, and are back when they are used.
void check_moved_values(const Subject& subject, Findings& findings);
// Checks that STEP updates each unit once, or in slices, after NORM.
void check_updates(const Subject& subject, Findings& findings);
// Checks that full parameters are present and current when an action reads them, and at the end.
void check_residency(const Subject& subject, Findings& findings);
// Checks that COUNT, NORM and the plans of units agree on the ranks with other samples. The other checks name axes that are
// missing.
void check_sums(const Subject& subject, Findings& findings);

// Checks that the ranks of a group along the split axes together run each position and hold each unit, and that tied parameters
// are summed over the ranks that hold them.
Findings check_stages(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs);

}  // namespace zt::verifier
