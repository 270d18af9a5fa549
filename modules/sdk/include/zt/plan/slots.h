// Buffers that units share in turns (slots). A unit holds its slot from the action that takes it to the action that frees it.
// Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "zt/model/unit.h"
#include "zt/program/rank_program.h"

namespace zt {

struct Slots {
  std::vector<int> of_unit;    // by unit; -1 means a buffer of its own
  std::vector<int64_t> sizes;  // by slot: elements of the longest unit in it, of the type of plain ones

  int64_t total() const;
};

// For units whose parameters are sharded: from UNSHARD to RESHARD, in any of the programs.
Slots parameter_slots(std::span<const RankProgram* const> programs, const ModelInfo& model, const std::vector<Unit>& units);

// For units whose gradients are sharded: from the first write of a gradient to its reduction; for those whose sum leaves from
// their own buffer: to the EVICT that takes it. Unless the reduction is waited for at once, the slot stays in use until the
// second next unit's first write, so that the reduction overlaps one unit's backward.
Slots gradient_slots(const RankProgram& training, const ModelInfo& model, const std::vector<Unit>& units);

// For units whose tensors are gathered: from GATHER_TENSORS to SCATTER_TENSORS. `sizes`: by unit, the elements of its staging.
Slots staging_slots(const RankProgram& training, const std::vector<int64_t>& sizes);

// The shared buffers of one rank, by the type of resource that lies in them.
struct SharedSlots {
  std::map<ResourceId, Slots> by_type;

  const Slots& of(ResourceId type) const { return by_type.at(type); }
  // Returns the resource that stands for the buffer of this one: units that share a slot count as one. Its number follows those
  // of the units.
  Resource buffer_of(const Resource& resource) const;
};

}  // namespace zt
