#include "zt/model/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt {

namespace {

constexpr double kFactor = 2;

struct LossScaleState {
  double scale = 1;
  int64_t steps = 0, last_overflow = -1, hysteresis_left = 1;
};

}  // namespace

LossScaleOptions parse_loss_scale(const Value& options, const std::string& path) {
  using O = LossScaleOptions;
  constexpr const char* kDynamic = "with loss_scale = 0, a dynamic scale";
  const auto is_dynamic = [](const O& o) { return o.is_dynamic(); };
  return Schema<O>(path)
      .optional("loss_scale", &O::loss_scale, "a constant scale; 0: dynamic", at_least(0))
      .optional("initial_scale_power", &O::initial_scale_power, "the first scale is 2^n", between(0, 127))
      .only_with(kDynamic, is_dynamic)
      .optional("loss_scale_window", &O::loss_scale_window, "steps without an overflow after which the scale doubles",
                at_least(1))
      .only_with(kDynamic, is_dynamic)
      .optional("hysteresis", &O::hysteresis, "overflows after which the scale is halved", at_least(1))
      .only_with(kDynamic, is_dynamic)
      .optional("consecutive_hysteresis", &O::consecutive_hysteresis, "a step without an overflow restores the hysteresis")
      .only_with(kDynamic, is_dynamic)
      .optional("min_loss_scale", &O::min_loss_scale, "lower bound of a dynamic scale", above(0))
      .only_with(kDynamic, is_dynamic)
      .parse(options);
}

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options),
      scale_(options.is_dynamic() ? std::ldexp(1.0, static_cast<int>(options.initial_scale_power)) : options.loss_scale),
      hysteresis_left_(options.hysteresis) {
  if (options.is_dynamic() && scale_ < options.min_loss_scale)
    misuse("min_loss_scale is {}, above the first scale 2^{} = {}: lower it, or raise initial_scale_power",
           options.min_loss_scale, options.initial_scale_power, scale_);
}

bool LossScale::update(bool has_overflowed) {
  if (!options_.is_dynamic()) return true;
  bool is_possible = true;
  if (has_overflowed) {
    if (options_.hysteresis == 1 || hysteresis_left_ == 1) {
      is_possible = scale_ != options_.min_loss_scale;
      scale_ = std::max(scale_ / kFactor, options_.min_loss_scale);
    } else {
      --hysteresis_left_;
    }
    last_overflow_ = steps_;
  } else {
    if (options_.consecutive_hysteresis) hysteresis_left_ = options_.hysteresis;
    const int64_t stable = steps_ - last_overflow_ - 1;  // steps without an overflow before this one
    if (stable > 0 && stable % options_.loss_scale_window == 0) {
      hysteresis_left_ = options_.hysteresis;
      scale_ *= kFactor;
    }
  }
  ++steps_;
  return is_possible;
}

Value LossScale::state() const {
  return Value::Table{
      {"scale", scale_}, {"steps", steps_}, {"last_overflow", last_overflow_}, {"hysteresis_left", hysteresis_left_}};
}

void LossScale::set_state(const Value& state) {
  if (!is_dynamic()) return;
  const LossScaleState given =
      Schema<LossScaleState>("the state of a loss scale")
          .required("scale", &LossScaleState::scale, "the scale", above(0))
          .required("steps", &LossScaleState::steps, "number of steps", at_least(0))
          .required("last_overflow", &LossScaleState::last_overflow, "the step of the last overflow", at_least(-1))
          .required("hysteresis_left", &LossScaleState::hysteresis_left, "overflows until the scale is halved", at_least(1))
          .parse(state);
  scale_ = given.scale;
  steps_ = given.steps;
  last_overflow_ = given.last_overflow;
  hysteresis_left_ = given.hysteresis_left;
}

}  // namespace zt
