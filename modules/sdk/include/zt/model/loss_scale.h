// The loss scale keeps small gradients from becoming zero in 16-bit floats: the loss is multiplied by it before the backward, and
// the gradients are divided by it in the step. No tensors.
// P. Micikevicius et al.: Mixed precision training. ICLR 2018. Option names and the sequence of scales are those of DeepSpeed's
// dynamic loss scaler.
#pragma once

#include <cstdint>

#include "zt/base/value.h"

namespace zt {

struct LossScaleOptions {
  double loss_scale = 0;                // a constant scale; 0: a dynamic scale, which the other options control
  int64_t initial_scale_power = 16;     // the first scale is 2^n
  int64_t loss_scale_window = 1000;     // steps without an overflow after which the scale doubles
  int64_t hysteresis = 2;               // overflows after which the scale is halved
  bool consecutive_hysteresis = false;  // a step without an overflow restores the hysteresis
  double min_loss_scale = 1;            // lower bound of a dynamic scale

  bool is_dynamic() const { return loss_scale == 0; }
};

// Parses a table of options. Throws Misuse, with `path`, for an unknown key, a wrong type or a value out of range.
LossScaleOptions parse_loss_scale(const Value& options, const std::string& path);

// Not thread-safe.
class LossScale {
 public:
  // Throws Misuse if the first scale is below min_loss_scale.
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return state_.scale; }
  bool is_dynamic() const { return options_.is_dynamic(); }
  // Updates the scale after a step. Returns false if the step overflowed and a dynamic scale is at its minimum already: then no
  // scale avoids the overflow.
  bool update(bool has_overflowed);

  // The state for checkpoints: {scale, steps, last_overflow, hysteresis_left}. set_state throws Misuse for another table, and
  // does nothing if the scale is constant.
  Value state() const;
  void set_state(const Value& state);

 private:
  struct State {
    double scale = 1;
    int64_t steps = 0;
    int64_t last_overflow = -1;  // the step of the last overflow; -1: none
    int64_t hysteresis_left = 1;
  };
  LossScaleOptions options_;
  State state_;
};

}  // namespace zt
