// What compressors share: the handler that runs REDUCE_GRAD, and the parts of it that differ.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zt/execute/executor.h"

namespace zt::zero {

// A unit whose gradient is reduced.
struct Reduced {
  const Unit& unit;
  const UnitInfo& info;
  at::Tensor residual;  // [elements of the unit, rounded up to 256]: what earlier steps have not sent, in the scale of `grad`
  at::Tensor out;       // where the sum belongs, in the gradients' dtype: all of the unit, or the part that this rank owns
  int64_t first = 0;    // the element of the unit with which `out` begins

  bool sums_all() const { return first == 0 && out.numel() == unit.grad.numel(); }
};

class Compressor {
 public:
  virtual ~Compressor();
  // Returns the buffers that the compressor needs for a unit beside the residual.
  virtual std::vector<PassBuffer> buffers(const ModelInfo& model, int unit) const = 0;
  // Returns the bytes that a rank sends for a unit over `ranks` ranks, each of which gets all of the sum or its part. `exact`: the
  // type of the residuals.
  virtual int64_t sent_bytes(const ModelInfo& model, int unit, int ranks, bool sums_all,
                             at::ScalarType exact) const = 0;
  // Fills `out` with the sums over the ranks of `comm`, and leaves in `residual` what this rank has not sent. With `is_failed` it
  // takes part with any numbers. If a gradient of a rank is not finite, or a rank has failed, it fills `out` with NaN on all
  // ranks, and leaves the residuals as they were, but for rounding.
  virtual void reduce(const std::vector<Reduced>& units, Communicator& comm, const StepState& state, bool is_failed) = 0;
};

// Returns the elements of a unit's residual.
int64_t residual_elements(const UnitInfo& unit);
// Returns the resources of the buffers "residual" and "residual_divisor" of passes: the second is the number by which the residuals
// are larger than those of the objective's gradient.
ResourceId residual_type();
ResourceId divisor_type();

// Fills `out` with NaN, except in gaps.
void fail(const std::vector<Reduced>& units, const ModelInfo& model);

// Returns a handler for REDUCE_GRAD.
std::shared_ptr<ActionHandler> make_reduction(std::shared_ptr<Compressor> compressor);

std::shared_ptr<Compressor> make_powersgd(int rank, uint64_t seed);
std::shared_ptr<Compressor> make_int8();
std::shared_ptr<Compressor> make_onebit();

}  // namespace zt::zero
