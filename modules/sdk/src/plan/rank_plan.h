// What one rank of a program does, holds and sends, before anything is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "zt/model/optimizer.h"
#include "zt/model/unit.h"
#include "zt/plan/slots.h"
#include "zt/program/program_spec.h"

namespace zt {

struct RankPlan {
  std::map<std::string, int64_t> actions;  // how many a step, by kind
  std::map<std::string, int64_t> sent;     // bytes a step, by kind: what a ring sends, 2 (W - 1) / W of what is reduced for all
  // Bytes held, by kind in the order of reports: parameters (whole ones and owned parts, and the buffers in which whole ones come
  // and go), master, gradients, optimizer, buckets (what gradients are sent from).
  std::vector<std::pair<std::string, int64_t>> held;
  bool operator==(const RankPlan&) const = default;
};

// The units of a rank without their buffers, and which of them share some.
struct RankUnits {
  std::vector<Unit> units;
  SharedSlots slots;
};

// `programs`: the rank's, of all modes, training first. Pure.
RankUnits describe_units(const ModelInfo& model, std::span<const Program* const> programs, const Coord& coord);

// `training`: the rank's program. Pure.
RankPlan plan_rank(const ModelInfo& model, const Program& training, const RankUnits& units, const Optimizer& optimizer,
                   const Coord& coord);

// Units that keep a sum beside their gradient, because each micro-batch is reduced by itself. Sharded gradients are that sum.
std::set<int> units_summed_apart(const Program& training);

// Elements of the longest bucket of gradients that are sent in another type than they are summed in.
int64_t wire_elements(const Program& training, const std::vector<Unit>& units);

}  // namespace zt
