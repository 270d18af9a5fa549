// The sums of a step's gradients: per use of a parameter, over micro-batches in ascending order, then over uses in ascending
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "execute/step/layer_table.h"
#include "zt/comm/comm.h"
#include "zt/model/layer.h"
#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt {

// A parameter that is used at several positions (tied weights) has one sum per use: the first in the unit's flat buffer, the
// other ones in buffers of their own. They are added when the gradient is completed, so the result does not depend on the
// schedule.
//
// Invariants: (1) a unit is open or complete; (2) in an open unit a use without a sum holds garbage, to be overwritten;
// (3) a complete unit's buffer holds the sum of all uses, zero where nothing was added, also between and after parameters and in
// their padding.
class Gradients {
 public:
  // Only the uses at positions that this rank runs have sums here.
  Gradients(const LayerTable& layers, const StepState& state);

  // Discards all sums: the next gradient of each use overwrites its buffer.
  void begin_step();
  // Call before a backward adds to the unit. If the unit was completed (and perhaps reduced), its sums begin again.
  void open(int unit);
  // Returns the buffer for the gradient of `param` from its use at `position`, and counts it as written. Requires an open unit.
  Context::Sink sink(int param, int position);
  void add(int param, int position, const at::Tensor& gradient);
  // Returns a tensor of the parameter's shape, not initialised, from which `add` rounds once: in float32 if gradients have 16
  // bits.
  at::Tensor scratch(int param) const;
  // Adds up the uses. Elements without a gradient become zero.
  void complete(int unit);
  // Replaces the sum of each parameter of the unit by the sum over the uses of all ranks of `comm`, which run different
  // positions, in ascending order of positions; the unit is complete then. Collective over `comm`.
  void complete_over_holders(const Unit& unit, Communicator& comm);
  // Allocates and frees what complete_over_holders does, on device meta.
  void rehearse_over_holders(const Unit& unit) const;
  // Returns the first parameter used at `position` for whose sum `is_wanted` is true; -1 if there is none.
  int find(int position, const std::function<bool(const at::Tensor&)>& is_wanted) const;
  // Returns the buffers for second and later uses.
  std::vector<at::Tensor> more_buffers() const;

 private:
  struct Use {
    int position;
    at::Tensor view;  // the parameter's shape
    bool has_sum = false;
  };
  struct GatheredRows;
  static GatheredRows rows_of(const std::vector<std::vector<int>>& uses);
  void sum_over_holders(int param, const GatheredRows& gathered, Communicator& comm);
  void find_gaps(const Unit& unit);

  const ModelInfo& model_;
  std::vector<std::vector<Use>> uses_;         // by parameter
  std::vector<std::vector<at::Tensor>> gaps_;  // by unit: parts of a shared buffer that no gradient of the unit covers
  std::vector<bool> is_complete_;              // by unit
};

}  // namespace zt
