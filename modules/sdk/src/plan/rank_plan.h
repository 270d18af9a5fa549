// The plan of one rank: the actions, the memory and the bytes that it sends in a step. Nothing is allocated.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "model/build/unit_build.h"
#include "zt/execute/homes.h"
#include "zt/model/optimizer.h"
#include "zt/model/unit.h"
#include "zt/plan/slots.h"
#include "zt/program/program.h"

namespace zt {

struct RankPlan {
  std::map<std::string, int64_t> actions;  // number per step, by kind
  std::map<std::string, int64_t> sent;     // bytes per step, by kind, of ring algorithms: 2 (W - 1) / W of an all_reduce
  std::map<std::string, int64_t> along;    // the same by axis, a joined one as "dp+cp"
  // Bytes held, by kind in the order of reports: parameters (whole ones, owned parts, and the slots of gathered ones), master,
  // gradients, optimizer, staging (tensors on their way to the ranks that update them whole; slices of data that lie elsewhere),
  // buffers (of passes, if they have
  // some), buckets (send buffers of gradients).
  std::vector<std::pair<std::string, int64_t>> held;
  // Bytes outside of the device's memory: host, files; without those that are 0.
  std::vector<std::pair<std::string, int64_t>> elsewhere = {};
  bool operator==(const RankPlan&) const = default;
};

// The units of a rank without their buffers, which of them share slots, and what lies elsewhere.
struct RankUnits {
  std::vector<Unit> units;
  SharedSlots slots;
  HomeMap homes = {};
  std::vector<int64_t> places = {};       // bytes by the attribute `slot` of FETCH, on the device
  std::vector<int64_t> host_places = {};  // in host memory

  // Returns the bytes in host memory, besides the device's: data, and places for slices.
  int64_t host_bytes() const { return std::accumulate(host_places.begin(), host_places.end(), homes.host); }
};

// The data from which the bytes of a rank's resources follow.
struct RankBasis {
  const ModelInfo& model;
  const RankProgram& program;  // the rank's main one, as in Plan
  const RankUnits& held;
  int64_t optimizer_states = 0;  // tensors of optimizer state per parameter
};
// Returns that from which the cost of an action of the rank follows. It keeps references to what `basis` refers to.
CostBasis cost_basis(const RankBasis& basis, const Coord& coord, const Action& action);

// `programs`: the rank's programs of all modes, the main one first. `optimizer` may be null. Pure.
RankUnits describe_units(const ModelInfo& model, std::span<const RankProgram* const> programs, const Coord& coord,
                         const Optimizer* optimizer = nullptr);

// Pure.
RankPlan plan_rank(const RankBasis& basis, const Coord& coord);

// Returns the units with a second gradient buffer for the sum over micro-batches, because each micro-batch is reduced on its own.
// Units with sharded gradients need none: their shard is that sum.
std::set<int> units_summed_apart(const RankProgram& program);

// Returns the bytes of the buffers of passes.
int64_t pass_buffer_bytes(const RankProgram& program, const std::vector<Unit>& units);

// Returns the lists of axes over which gradients are sent in another dtype than they are summed in.
AxesList wire_axes(const RankProgram& program);
// Returns the elements of the longest bucket whose gradients are sent in another dtype than they are summed in.
int64_t wire_elements(const RankProgram& program, const std::vector<Unit>& units);

}  // namespace zt
