#include "verify.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "play/player.h"
#include "program/equal.h"

namespace zt {

namespace verifier {

std::string joined(const std::vector<std::string>& axes) {
  return fmt::format("'{}'", fmt::join(axes, "' and '"));
}

std::string as_list(const std::vector<std::string>& axes) {
  return Value(Value::List(axes.begin(), axes.end())).to_json().dump();
}

bool is_in_range(const Subject& subject, const Resource& resource) {
  return exists(resource, subject.model, subject.program.micro_batches);
}

namespace {

// Checks that this rank holds the units that an action touches.
void check_held(const Subject& subject, int step, Findings& findings) {
  const Resources& declared = subject.resources[static_cast<size_t>(step)];
  for (const auto* list : {&declared.reads, &declared.writes, &declared.frees}) {
    for (const Resource& resource : *list) {
      const bool is_of_unit = type_of(resource.type).index == Index::unit;
      if (!is_of_unit || !is_in_range(subject, resource) || subject.program.units[resource.index].held) continue;
      return refuse(subject, findings, step, "it touches {}, which this rank does not hold: remove held=false, or the action",
                    subject.unit(resource.index));
    }
  }
}

// Runs the checks that need the program of one rank only.
Findings check_rank(const ModelInfo& model, const MeshShape& mesh, const RankProgram& program, int rank) {
  Findings findings;
  Subject subject{model, mesh, program, rank};
  check_fields(subject, findings);
  if (!findings.empty()) return findings;
  subject.resources.reserve(program.actions.size());
  for (int step = 0; step < subject.size(); ++step) {
    const Action& action = subject.action(step);
    const Resources& declared = subject.resources.emplace_back(resources_of(action, model));
    for (const auto* list : {&declared.reads, &declared.writes, &declared.frees}) {
      const bool is_fine = std::all_of(list->begin(), list->end(), [&](const Resource& r) { return is_in_range(subject, r); });
      if (!is_fine)
        refuse(subject, findings, step,
               "its kind declares a resource that this model does not have: correct the kind's resources");
    }
    if (role_of(action) != Role::scalars) check_held(subject, step, findings);
  }
  if (!findings.empty()) return findings;
  check_values(subject, findings);
  check_gradients(subject, findings);
  check_updates(subject, findings);
  check_residency(subject, findings);
  check_movement(subject, findings);
  check_moved_values(subject, findings);
  if (findings.empty()) check_sums(subject, findings);
  return findings;
}

// Returns, by rank, the first rank with an equal program. Most ranks share a program with others.
std::vector<int> first_equals(const std::vector<const RankProgram*>& programs) {
  std::vector<int> firsts, distinct;
  std::map<const RankProgram*, int> known;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    const auto [found, is_new] = known.try_emplace(programs[rank], rank);
    if (is_new) {
      const auto equal = std::ranges::find_if(distinct, [&](int other) { return is_equal(*programs[other], *programs[rank]); });
      if (equal != distinct.end()) found->second = *equal;
      else distinct.push_back(rank);
    }
    firsts.push_back(found->second);
  }
  return firsts;
}

// Returns whether the plans of all units are equal, except for which rank holds them, and where these have their data.
bool is_spread_alike(const RankProgram& a, const RankProgram& b) {
  return std::ranges::equal(a.units, b.units, [](UnitPlan x, const UnitPlan& y) {
    x.held = y.held;
    x.slices = y.slices;
    x.state_home = y.state_home;
    x.grads_home = y.grads_home;
    x.params_home = y.params_home;
    return x == y;
  });
}

// Checks that mode, micro-batches, unit plans, precision and max_live are the same on all ranks.
Findings check_agreement(const std::vector<const RankProgram*>& programs) {
  Findings findings;
  const RankProgram& first = *programs[0];
  std::set<const RankProgram*> agreeing;
  for (int rank = 1; rank < static_cast<int>(programs.size()); ++rank) {
    const RankProgram& other = *programs[rank];
    if (agreeing.contains(&other)) continue;
    const char* what = other.mode != first.mode                     ? "mode"
                       : other.micro_batches != first.micro_batches ? "number of micro-batches"
                       : other.split_axes != first.split_axes       ? "list of split axes"
                       : !is_spread_alike(other, first)             ? "unit plan"
                       : other.precision != first.precision         ? "precision"
                       : other.max_live != first.max_live           ? "max_live"
                                                                    : nullptr;
    if (!what) {
      agreeing.insert(&other);
      continue;
    }
    findings.push_back(
        {rank, -1, fmt::format("its {} is not that of rank 0: build all ranks' programs with the same passes", what)});
  }
  return findings;
}

// Checks that a buffer of a pass is the same on all ranks that have it.
Findings check_buffers_alike(const ModelInfo& model, const std::vector<const RankProgram*>& programs,
                             const std::vector<int>& firsts) {
  Findings findings;
  std::map<std::pair<ResourceId, int32_t>, std::pair<int, const PassBuffer*>> known;
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    if (firsts[rank] != rank) continue;
    for (const PassBuffer& buffer : programs[rank]->buffers) {
      const auto [found, is_new] = known.try_emplace({buffer.type, buffer.index}, rank, &buffer);
      if (is_new || found->second.first == rank || *found->second.second == buffer) continue;
      const ResourceType& type = type_of(buffer.type);
      findings.push_back({rank, -1,
                          fmt::format("the buffer '{}' of {} has another shape, type or residence than on rank {}: they must not "
                                      "depend on the rank",
                                      type.name, owner_text(type.index, buffer.index, model), found->second.first)});
    }
  }
  return findings;
}

// Returns the action's text, or "kind NUMBER" if the kind is not registered.
std::string text_of(const RankProgram& program, int step) {
  const Action& action = program.actions[step];
  try {
    return action_text(action);
  } catch (const Misuse&) {
    return fmt::format("kind {}", action.kind);
  }
}

}  // namespace

}  // namespace verifier

std::string Refusal::text() const {
  return step < 0 ? fmt::format("rank {}: {}", rank, reason)
                  : fmt::format("rank {}, action {} ({}): {}", rank, step, action, reason);
}

std::vector<Refusal> verify(const ModelInfo& model, const MeshShape& mesh, const std::vector<const RankProgram*>& programs,
                            size_t limit) {
  const int ranks = mesh.world_size();
  if (static_cast<int>(programs.size()) != ranks)
    misuse("verify: {} programs for a mesh of {} ranks: give one per rank", programs.size(), ranks);
  std::vector<Refusal> refusals = verifier::check_agreement(programs);
  const std::vector<int> firsts = verifier::first_equals(programs);
  std::vector<const RankProgram*> shared;
  for (int rank = 0; rank < ranks; ++rank) {
    shared.push_back(programs[firsts[rank]]);
    if (firsts[rank] != rank) continue;  // checked with the first rank that has this program
    const auto others = std::count(firsts.begin(), firsts.end(), rank) - 1;
    for (Refusal& refusal : verifier::check_rank(model, mesh, *programs[rank], rank)) {
      if (others > 0) refusal.reason += fmt::format(" ({} other ranks have the same program)", others);
      refusals.push_back(std::move(refusal));
    }
  }
  const auto unlike = verifier::check_buffers_alike(model, programs, firsts);
  refusals.insert(refusals.end(), unlike.begin(), unlike.end());
  // If a program is wrong already, the check of the order would only repeat its errors.
  if (refusals.empty()) refusals = verifier::check_stages(model, mesh, programs);
  if (refusals.empty()) refusals = play(played_ranks(model, mesh, shared), model, {}).errors;
  for (Refusal& refusal : refusals) {
    if (refusal.step >= 0) refusal.action = verifier::text_of(*programs[refusal.rank], refusal.step);
  }
  std::stable_sort(refusals.begin(), refusals.end(),
                   [](const Refusal& a, const Refusal& b) { return std::pair(a.rank, a.step) < std::pair(b.rank, b.step); });
  if (refusals.size() > limit) refusals.resize(limit);
  return refusals;
}

}  // namespace zt
