// Which gradients of a step have been summed where: parameters by use, micro-batches ascending, uses ascending.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "zt/model/layer.h"
#include "zt/model/model.h"
#include "zt/model/unit.h"

namespace zt {

// A parameter used at several positions (tied weights) sums each use by itself: the first in the unit's flat buffer, the
// others in buffers of their own, added when the gradient is completed. So the sum does not depend on the schedule.
//
// Invariants: (1) a unit is open or complete; (2) in an open unit a use without a sum holds garbage, to be overwritten;
// (3) a complete unit's buffer holds the sum of all uses, zero where nothing was added, also between and behind parameters.
class Gradients {
 public:
  Gradients(const ModelInfo& model, std::vector<Unit>& units);

  // Forgets all sums: the next gradient of each use overwrites.
  void begin_step();
  // A backward is about to add to the unit: after it was completed (and perhaps reduced), sums start anew.
  void open(int unit);
  // Where the gradient of `param` from its use at `position` goes. Its unit is open. Marks a sum.
  Context::Sink sink(int param, int position);
  void add(int param, int position, const at::Tensor& gradient);
  // Sums the uses; zero where there was none.
  void complete(int unit);
  // The first parameter used at `position` whose sum of that use is one that `is_wanted`; -1 if there is none.
  int find(int position, const std::function<bool(const at::Tensor&)>& is_wanted) const;
  // Bytes of the buffers for further uses.
  int64_t extra_bytes() const;

 private:
  struct Use {
    int position;
    at::Tensor view;  // the parameter's shape
    bool has_sum = false;
  };
  void find_gaps(const Unit& unit);

  const ModelInfo& model_;
  std::vector<std::vector<Use>> uses_;         // by parameter
  std::vector<std::vector<at::Tensor>> gaps_;  // by unit: what no gradient covers, where other units share the buffer
  std::vector<bool> is_complete_;              // by unit
};

}  // namespace zt
