#include "schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <string>

#include "zt/base/options.h"

namespace zt::optim {

namespace {

// A schedule whose rate is ratio(step) times the base rate. Immutable.
class RatioSchedule final : public Schedule {
 public:
  using Ratio = std::function<double(double step)>;
  RatioSchedule(std::string kind, Ratio ratio) : kind_(std::move(kind)), ratio_(std::move(ratio)) {}

  std::string kind() const override { return kind_; }
  double lr(int64_t step, double base) const override {
    if (step < 0) misuse("{}: steps count from 0, got {}", kind_, step);
    return base * ratio_(static_cast<double>(step));
  }

 private:
  std::string kind_;
  Ratio ratio_;
};

// linear() and cosine() return `start` for part = 0, `end` for part = 1, and a value between them otherwise.
double linear(double start, double end, double part) {
  return start + (end - start) * part;
}
double cosine(double start, double end, double part) {
  return end + (start - end) * 0.5 * (1 + std::cos(std::numbers::pi * part));
}
using Anneal = double (*)(double, double, double);

struct WarmupOptions {
  int64_t warmup = 0;
  int64_t total = 0;
  double min_ratio = 0;
  std::optional<double> start_ratio;
};

std::shared_ptr<Schedule> warmup_of(const std::string& kind, Anneal down, const WarmupOptions& options) {
  if (options.total <= options.warmup) {
    misuse("optim.{}: total ({}) must be above warmup ({}): it includes the steps of the warmup", kind, options.total,
           options.warmup);
  }
  const auto warmup = static_cast<double>(options.warmup), total = static_cast<double>(options.total);
  const double start = options.start_ratio.value_or(1 / (warmup + 1)), end = options.min_ratio;
  return std::make_shared<RatioSchedule>(kind, [=](double step) {
    if (step < warmup) return linear(start, 1, step / warmup);
    return down(1, end, std::min(1.0, (step - warmup) / (total - warmup)));
  });
}

std::shared_ptr<Schedule> make_warmup(const std::string& kind, Anneal down, const Value& value) {
  return Schema<WarmupOptions>("optim." + kind)
      .optional("warmup", &WarmupOptions::warmup, "steps of rising rate", at_least(0))
      .required("total", &WarmupOptions::total, "number of steps, warmup included", at_least(1))
      .optional("min_ratio", &WarmupOptions::min_ratio, "last rate divided by the base rate", between(0, 1))
      .optional("start_ratio", &WarmupOptions::start_ratio, "rate at step 0 divided by the base rate", between(0, 1))
      .only_with("with warmup above 0", [](const WarmupOptions& o) { return o.warmup > 0; })
      .make(value, [&](const WarmupOptions& o) { return warmup_of(kind, down, o); });
}

struct OneCycleOptions {
  int64_t total = 0;
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
};

// A phase ends at step `end` with `ratio`; the next phase starts there.
struct CyclePhase {
  double end, ratio;
};

std::vector<CyclePhase> one_cycle_phases(const OneCycleOptions& options) {
  const auto total = static_cast<double>(options.total);
  const double first = 1 / options.div_factor, last = first / options.final_div_factor;
  const double up = options.pct_start * total - 1;
  if (options.three_phase) return {{0, first}, {up, 1}, {2 * options.pct_start * total - 2, first}, {total - 1, last}};
  return {{0, first}, {up, 1}, {total - 1, last}};
}

std::shared_ptr<Schedule> one_cycle_of(const OneCycleOptions& options) {
  const std::vector<CyclePhase> phases = one_cycle_phases(options);
  if (options.three_phase && options.pct_start > 0.5) {
    misuse(
        "optim.one_cycle: three phases need pct_start up to 0.5, got {}: the rise and the first fall take this fraction of the "
        "steps each",
        options.pct_start);
  }
  const Anneal anneal = options.anneal_strategy == "cos" ? cosine : linear;
  return std::make_shared<RatioSchedule>("one_cycle", [=](double step) {
    for (size_t i = 1; i < phases.size(); ++i) {
      const CyclePhase &from = phases[i - 1], &to = phases[i];
      if (step < to.end) return anneal(from.ratio, to.ratio, (step - from.end) / (to.end - from.end));
    }
    return phases.back().ratio;
  });
}

struct RangeTestOptions {
  int64_t step_size = 2000;
  double step_rate = 1;
  bool staircase = false;
};

struct StepDecayOptions {
  int64_t step_size = 0;
  double gamma = 0.1;
};

}  // namespace

std::shared_ptr<Schedule> make_constant(const Value& options) {
  checked_table(options, "optim.constant", {});
  return std::make_shared<RatioSchedule>("constant", [](double) { return 1.0; });
}

std::shared_ptr<Schedule> make_warmup_linear(const Value& options) {
  return make_warmup("warmup_linear", linear, options);
}
std::shared_ptr<Schedule> make_warmup_cosine(const Value& options) {
  return make_warmup("warmup_cosine", cosine, options);
}

std::shared_ptr<Schedule> make_one_cycle(const Value& value) {
  return Schema<OneCycleOptions>("optim.one_cycle")
      .required("total", &OneCycleOptions::total, "number of steps", at_least(1))
      .optional("pct_start", &OneCycleOptions::pct_start, "fraction of the steps with rising rate", between(0, 1))
      .optional("anneal_strategy", &OneCycleOptions::anneal_strategy, "shape of the rise and the fall", one_of({"cos", "linear"}))
      .optional("div_factor", &OneCycleOptions::div_factor, "base rate divided by the first rate", above(0))
      .optional("final_div_factor", &OneCycleOptions::final_div_factor, "first rate divided by the last rate", above(0))
      .optional("three_phase", &OneCycleOptions::three_phase, "fall as fast as the rise to the first rate, then to the last rate")
      .make(value, one_cycle_of);
}

std::shared_ptr<Schedule> make_lr_range_test(const Value& value) {
  return Schema<RangeTestOptions>("optim.lr_range_test")
      .optional("step_size", &RangeTestOptions::step_size, "steps per interval", at_least(1))
      .optional("step_rate", &RangeTestOptions::step_rate, "growth per interval, as a multiple of the base rate", at_least(0))
      .optional("staircase", &RangeTestOptions::staircase, "grow in one step at the end of each interval")
      .make(value, [](const RangeTestOptions& options) {
        return std::make_shared<RatioSchedule>("lr_range_test", [options](double step) {
          const double intervals = step / static_cast<double>(options.step_size);
          return 1 + options.step_rate * (options.staircase ? std::floor(intervals) : intervals);
        });
      });
}

std::shared_ptr<Schedule> make_step_decay(const Value& value) {
  return Schema<StepDecayOptions>("optim.step_decay")
      .required("step_size", &StepDecayOptions::step_size, "steps between two decays", at_least(1))
      .optional("gamma", &StepDecayOptions::gamma, "factor of each decay", at_least(0))
      .make(value, [](const StepDecayOptions& options) {
        return std::make_shared<RatioSchedule>("step_decay", [options](double step) {
          return std::pow(options.gamma, std::floor(step / static_cast<double>(options.step_size)));
        });
      });
}

}  // namespace zt::optim
