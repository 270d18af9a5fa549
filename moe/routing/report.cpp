#include "routing/report.h"

#include <ATen/ATen.h>

#include <cmath>

namespace zt::moe {

namespace {

double quotient(double a, double b) {
  return b == 0 ? 0 : a / b;
}

at::Tensor number(double value) {
  return at::scalar_tensor(value, at::kDouble);
}

}  // namespace

Stats routing_report(const Stats& sums) {
  if (sums.empty()) return {};
  const auto sum = [&](const char* name) { return sums.at(name).item<double>(); };
  const at::Tensor& load = sums.at("load");
  const double routes = load.sum().item<double>(), mean = routes / static_cast<double>(load.numel());
  const double deviation = std::sqrt(load.sub(mean).square().mean().item<double>()), tokens = sum("tokens");
  Stats shown{
      {"load", load},
      {"dropped", number(sum("dropped"))},
      {"tokens", number(tokens)},
      {"load_max_over_mean", number(quotient(load.max().item<double>(), mean))},
      {"load_cv", number(quotient(deviation, mean))},
      {"idle_experts", number(load.eq(0).sum().item<double>())},
      {"dropped_share", number(quotient(sum("dropped"), routes))},
      {"entropy", number(quotient(sum("entropy"), tokens))},
      {"logit_rms", number(std::sqrt(quotient(sum("logits"), tokens)))},
  };
  if (sums.contains("bias")) shown["bias_norm"] = number(std::sqrt(quotient(sum("bias"), tokens)));
  return shown;
}

}  // namespace zt::moe
