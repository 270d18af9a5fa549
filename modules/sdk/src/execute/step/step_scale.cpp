#include "step_scale.h"

#include <cmath>

#include "zt/base/error.h"

namespace zt {

double StepScale::set_counts(const Counts& global, double parts) {
  const auto base = static_cast<double>(global.tokens > 0 ? global.tokens : global.samples);
  if (!exponent) exponent = static_cast<int>(std::lround(std::log2(base / parts)));
  token_ = std::ldexp(1.0, -*exponent);
  sample_ = token_ * base / static_cast<double>(global.samples);
  return token_ * base;
}

void StepScale::set_micro_batch(const Counts& counts) {
  token_ = counts.tokens > 0 ? 1.0 / static_cast<double>(counts.tokens) : 0;
  sample_ = 1.0 / static_cast<double>(counts.samples);
}

double StepScale::loss_divisor(Per per, const Counts& global) const {
  if (is_by_hand()) return means_;
  const int64_t count = per == Per::token ? global.tokens : global.samples;
  if (count == 0)
    misuse("the global batch has no valid token, so the loss per token is not defined: are all labels ignore_index?");
  return static_cast<double>(count);
}

}  // namespace zt
