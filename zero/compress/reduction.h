// What compressors share: the handler that runs REDUCE_GRAD, and the parts of it that differ.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zt/execute/executor.h"

namespace zt::zero {

// A unit whose gradient is reduced.
struct Reduced {
  const Unit& unit;
  const UnitInfo& info;
  at::Tensor residual;  // [elements of the unit, rounded up to 256]: what was not sent so far, in the scale of `grad`
  at::Tensor out;       // where the sum belongs, in the gradients' dtype: all of the unit, or the part that this rank owns
  int64_t first = 0;    // the element of the unit with which `out` begins

  bool sums_all() const { return first == 0 && out.numel() == unit.grad.numel(); }
};

// A pair of buffers. REDUCE_GRAD writes `next`. KEEP_UNSENT copies it to `kept` at the end of a step that makes its update.
struct Staged {
  ResourceId kept, next;
};

class Compressor {
 public:
  virtual ~Compressor();
  // Returns the buffers that the compressor has beside the residuals, and the elements of one for a unit; they are float32.
  virtual std::vector<Staged> buffers() const { return {}; }
  virtual int64_t elements(const ModelInfo& /*model*/, int /*unit*/) const { return 0; }
  // Returns the bytes that a rank sends for a unit over `ranks` ranks, each of which gets all of the sum or its part. `exact`:
  // the type of the residuals.
  virtual int64_t sent_bytes(const ModelInfo& model, int unit, int ranks, bool sums_all, at::ScalarType exact) const = 0;
  // Fills `out` with the sums over the ranks of `comm`, and leaves in `residual` what this rank has not sent. With `is_failed` it
  // takes part with any numbers. If a gradient of a rank is not finite, or a rank has failed, it fills `out` with NaN on all
  // ranks; the step is then not completed.
  virtual void reduce(const std::vector<Reduced>& units, Communicator& comm, const StepState& state, bool is_failed) = 0;
};

// Returns the elements of a unit's residual.
int64_t residual_elements(const UnitInfo& unit);
// Registers a buffer of units of this name, and "NAME_next".
Staged staged_buffer(const std::string& name);
const Staged& residual_buffer();
// The number by which the residuals are larger than those of the objective's gradient.
ResourceId divisor_type();

// Fills `out` with NaN, except in gaps.
void fail(const std::vector<Reduced>& units, const StepState& state);

// Return handlers for REDUCE_GRAD and for KEEP_UNSENT, of the same reductions.
std::pair<std::shared_ptr<ActionHandler>, std::shared_ptr<ActionHandler>> make_reduction(std::shared_ptr<Compressor> compressor);

std::shared_ptr<Compressor> make_powersgd(int rank, uint64_t seed);
std::shared_ptr<Compressor> make_int8();
std::shared_ptr<Compressor> make_onebit();

}  // namespace zt::zero
