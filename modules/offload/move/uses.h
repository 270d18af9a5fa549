// Which actions need data that lie elsewhere. Pure.
#pragma once

#include <vector>

#include "zt/model/model.h"
#include "zt/program/intervals.h"
#include "zt/program/rank_program.h"

namespace zt::offload {

// What takes places in memory of one size.
enum class Pool : uint8_t {
  state,   // slices of optimizer state
  params,  // slices of parameters, of units that are cut
  units,   // all parameters of a unit that this rank owns
};

// A slice that travels, or the whole of a unit's parameters.
struct Cargo {
  UnitData data;
  int unit, part;  // part: -1 for the whole

  bool is_whole() const { return part < 0; }
};

struct PoolUses {
  std::vector<Cargo> items;
  std::vector<std::vector<int>> of_action;  // the items that it needs
  std::vector<std::vector<int>> changed;    // the items that it changes
  std::vector<int> waits;                   // by action: the next one that waits until its work on parameters has ended
  int earliest = 0;                         // the first action before which items may be fetched

  bool is_changed_in(const MemoryInterval& interval) const;
  // Returns the last action until which what uses the item in this interval may be under way.
  int waited_for(const MemoryInterval& interval) const { return waits[static_cast<size_t>(interval.last)]; }
};

PoolUses find_uses(const RankProgram& program, const ModelInfo& model, Pool pool);

}  // namespace zt::offload
