// The factor that keeps 16-bit floats' small gradients from becoming zero: the loss is multiplied by it before the backward, the
// gradients are divided by it in the step. Pure state, no tensors.
// P. Micikevicius et al.: Mixed precision training. ICLR 2018; names and sequence are those of DeepSpeed's dynamic loss scaler.
#pragma once

#include <cstdint>

#include "zt/base/value.h"

namespace zt {

struct LossScaleOptions {
  double loss_scale = 0;                // a constant scale; 0: dynamic, by the rest of these
  int64_t initial_scale_power = 16;     // the first scale is 2^n
  int64_t loss_scale_window = 1000;     // steps without an overflow until the scale doubles
  int64_t hysteresis = 2;               // overflows until the scale is halved
  bool consecutive_hysteresis = false;  // a step without an overflow restores the hysteresis
  double min_loss_scale = 1;            // it is never halved below

  bool is_dynamic() const { return loss_scale == 0; }
};

// Misuse, with `path`, for an unknown key, a wrong type or a value out of range.
LossScaleOptions parse_loss_scale(const Value& options, const std::string& path);

// Threads: as an int.
class LossScale {
 public:
  // Misuse when the first scale is below the least.
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return scale_; }
  bool is_dynamic() const { return options_.is_dynamic(); }
  // A step is over. False if it overflowed while a dynamic scale was at its minimum: no scale will do.
  bool update(bool has_overflowed);

  // For checkpoints: {scale, steps, last_overflow, hysteresis_left}. Misuse for another table. A constant scale stays as it is.
  Value state() const;
  void set_state(const Value& state);

 private:
  LossScaleOptions options_;
  double scale_;
  int64_t steps_ = 0;
  int64_t last_overflow_ = -1;  // the step of the last overflow
  int64_t hysteresis_left_;
};

}  // namespace zt
