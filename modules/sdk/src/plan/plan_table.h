// The plan of all ranks as a table for reports.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace zt {

// Returns ascending numbers as text: "0-511" or "0, 4, 8".
std::string ranges_text(const std::vector<int>& numbers);

// Returns the bytes that a rank sends in such a step of `program`, by kind of action, and by kind of layer what layers send.
std::map<std::string, int64_t> sent_by_kind(const RankPlan& rank, const RankProgram& program, const Rehearsal& rehearsed,
                                            const ModelInfo& model);

// Returns what the plan assumes of the layers that the rank runs in `program`: sentences, each after the kind of the layer.
std::set<std::string> assumptions_of(const RankProgram& program, const Plan& plan);

// Returns the same bytes by mesh axis; of joined axes as "dp+cp".
std::map<std::string, int64_t> sent_by_axis(const RankPlan& rank, const RankProgram& program, const Rehearsal& rehearsed);

// Returns one entry for each kind of rank: {ranks = "0-511", count, memory, actions, sent, along, assumptions}: tables by kind,
// one by axis, and a list of sentences about layers. `batch`: each rank's part of a global batch.
Value plan_of_all_ranks(const Plan& plan, const StepBatch& batch);

}  // namespace zt
