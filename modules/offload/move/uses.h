// Which actions need data that lie elsewhere. Pure.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "zt/model/model.h"
#include "zt/program/intervals.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// The users of memory, each with places of one size: for slices, or for all that this rank owns of a unit.
enum class Pool : uint8_t { state, grads, params, sums, units };
inline constexpr std::array kAllPools{Pool::state, Pool::grads, Pool::params, Pool::sums, Pool::units};

// A slice that travels, or the whole of a unit's gradient or parameters.
struct Cargo {
  UnitData data;
  int unit, part;  // part: -1 for the whole

  bool is_whole() const { return part < 0; }
  Pool pool() const;
};

struct PoolUses {
  std::vector<Cargo> items;
  std::vector<std::vector<int>> of_action;  // the items that it needs
  std::vector<std::vector<int>> changed;    // the items that it changes
  std::vector<int> waits;                   // by action: the next one that waits until its work on parameters has ended
  std::vector<std::vector<int>> updates;    // by unit: its STEPs; between them it is in memory in slices
  int norm = -1;                            // NORM, before which complete gradients leave
  int earliest = 0;                         // the first action before which items may be fetched

  bool is_changed_in(const MemoryInterval& interval) const;
  // Returns whether the item may stay in memory from one use to the next.
  bool may_stay(int item, int from, int to) const;
  // Returns the action that needs most items, -1 if none needs any, and how many.
  std::pair<int, int> most() const;
  // Returns the last action until which what uses the item in this interval may be under way.
  int waited_for(const MemoryInterval& interval) const { return waits[static_cast<size_t>(interval.last)]; }
};

// A gradient that is summed in the unit's own buffer needs a place when it leaves: after the last action before NORM that works
// with it.
PoolUses find_uses(const RankProgram& program, const ModelInfo& model, Pool pool);
bool is_summed_in_own_buffer(const Cargo& cargo, const RankProgram& program);

}  // namespace zt::offload
