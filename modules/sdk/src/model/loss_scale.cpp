#include "zt/model/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt {

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
      state_{.scale = options.is_dynamic() ? std::ldexp(1.0, static_cast<int>(options.initial_scale_power)) : options.loss_scale,
             .hysteresis_left = options.hysteresis} {
  if (options.is_dynamic() && state_.scale < options.min_loss_scale)
    misuse("min_loss_scale is {}, above the first scale 2^{} = {}: lower it, or raise initial_scale_power",
           options.min_loss_scale, options.initial_scale_power, state_.scale);
}

bool LossScale::update(bool has_overflowed) {
  constexpr double kFactor = 2;
  if (!options_.is_dynamic()) return true;
  bool is_possible = true;
  if (has_overflowed) {
    if (options_.hysteresis == 1 || state_.hysteresis_left == 1) {
      is_possible = state_.scale != options_.min_loss_scale;
      state_.scale = std::max(state_.scale / kFactor, options_.min_loss_scale);
    } else {
      --state_.hysteresis_left;
    }
    state_.last_overflow = state_.steps;
  } else {
    if (options_.consecutive_hysteresis) state_.hysteresis_left = options_.hysteresis;
    const int64_t stable = state_.steps - state_.last_overflow - 1;  // steps without an overflow before this one
    if (stable > 0 && stable % options_.loss_scale_window == 0) {
      state_.hysteresis_left = options_.hysteresis;
      state_.scale *= kFactor;
    }
  }
  ++state_.steps;
  return is_possible;
}

Value LossScale::state() const {
  return Value::Table{{"scale", state_.scale},
                      {"steps", state_.steps},
                      {"last_overflow", state_.last_overflow},
                      {"hysteresis_left", state_.hysteresis_left}};
}

void LossScale::set_state(const Value& state) {
  if (!is_dynamic()) return;
  state_ = Schema<State>("the state of a loss scale")
               .required("scale", &State::scale, "the scale", above(0))
               .required("steps", &State::steps, "number of steps", at_least(0))
               .required("last_overflow", &State::last_overflow, "the step of the last overflow", at_least(-1))
               .required("hysteresis_left", &State::hysteresis_left, "overflows until the scale is halved", at_least(1))
               .parse(state);
}

}  // namespace zt
