// Which provider is right, and which is fastest.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "zt/error.h"
#include "zt/gemm_choice.h"

namespace zt {

namespace {

constexpr double kLeastGain = 0.03;        // of the time; less is noise, and not worth other bits
constexpr double kSecondsAProvider = 0.2;  // spent on timing one provider in one class
constexpr int kMinRounds = 5, kMaxRounds = 50;
constexpr int64_t kProbe = 256;  // largest m, n, k of the product that sorts out, quickly, what is wrong or hopelessly slow
constexpr int kProbeRounds = 3;
constexpr double kHopeless = 5;  // times the time of the fastest
constexpr int64_t kLines = 64;   // rows and columns of a result that are compared with fp64

double work(const GemmShape& shape) {
  return static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

struct Product {
  GemmShape shape;
  at::Tensor a, b, c;
  double beta;

  // Operands as a layer has them: x and dy [rows, columns], W [out, in], the weight gradient added to a sink, bias and residual
  // not added: where c is added, it is read once more by every provider.
  explicit Product(const GemmShape& s) : shape(s) {
    const auto wide = at::TensorOptions(s.dtype == at::kDouble ? at::kDouble : at::kFloat);
    const auto matrix = [&](int64_t rows, int64_t columns) {
      at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rows * 1'000'003 + columns));
      return at::randn({rows, columns}, generator, wide).to(s.dtype);
    };
    const bool is_weight = s.kind == GemmKind::weight_gradient;
    a = is_weight ? matrix(s.k, s.m).t() : matrix(s.m, s.k);
    b = s.kind == GemmKind::forward ? matrix(s.n, s.k).t() : matrix(s.k, s.n);
    c = at::zeros({s.m, s.n}, s.widens ? wide : wide.dtype(s.dtype));
    beta = is_weight ? 1 : 0;
  }

  void run(const Gemm& provider) const { provider.run(a, b, c, beta, 1); }

  // The largest excess over what rounding explains, at evenly spaced rows and columns; nan where the result is.
  // 2 k u |a| |b| for the sum in fp32 (fp64), whatever its order, and 2 u |c| for one rounding to c's dtype.
  double excess(const Gemm& provider) const {
    c.zero_();
    run(provider);
    return std::max(excess_of(lines(a, 0), b, lines(c, 0)), excess_of(a, lines(b, 1), lines(c, 1)));
  }

 private:
  static at::Tensor lines(const at::Tensor& matrix, int64_t dim) {
    const int64_t size = matrix.size(dim), count = std::min(size, kLines);
    return matrix.index_select(dim, at::linspace(0, static_cast<double>(size - 1), count, at::kDouble).round().to(at::kLong));
  }
  double excess_of(const at::Tensor& left, const at::Tensor& right, const at::Tensor& got) const {
    const at::Tensor wide_left = left.to(at::kDouble), wide_right = right.to(at::kDouble);
    const at::Tensor exact = wide_left.mm(wide_right);
    const double sum_unit = shape.dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
    const double unit = c.scalar_type() == at::kHalf ? 0x1p-11 : c.scalar_type() == at::kBFloat16 ? 0x1p-8 : sum_unit;
    const at::Tensor bound =
        wide_left.abs().mm(wide_right.abs()) * (2 * static_cast<double>(shape.k) * sum_unit) + exact.abs() * (2 * unit);
    const at::Tensor over = (got.to(at::kDouble) - exact).abs() - bound;
    return over.isfinite().all().item<bool>() ? over.max().item<double>() : std::numeric_limits<double>::infinity();
  }
};

struct Candidate {
  std::string name;
  const Gemm* provider;
  std::vector<double> seconds = {};

  double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<int64_t>(sorted.size() / 2));
    return sorted[sorted.size() / 2];
  }
};

// Empty if the provider's result is right.
std::string complaint(const Product& product, const Gemm& provider) {
  try {
    const double excess = product.excess(provider);
    return excess <= 0 ? "" : fmt::format("its result is wrong: {} beyond rounding", excess);
  } catch (const std::exception& error) {
    return describe(error);
  }
}

std::vector<Candidate> candidates_for(const GemmShape& shape, const GemmTrial& trial) {
  std::vector<Candidate> candidates;
  for (const std::string& name : trial.providers) {
    const Gemm& provider = find_gemm(name);
    if (provider.takes(at::kCPU, shape.dtype)) candidates.push_back({name, &provider});
  }
  return candidates;
}

void keep_right(std::vector<Candidate>& candidates, const Product& product, const std::string& title, const GemmTrial& trial) {
  std::erase_if(candidates, [&](const Candidate& each) {
    const std::string wrong = complaint(product, *each.provider);
    if (!wrong.empty()) trial.report(fmt::format("{}: '{}' is not chosen: {}", title, each.name, wrong));
    return !wrong.empty();
  });
  if (candidates.empty()) fault("{}: no gemm provider gives a right result: this build of LibTorch cannot be used here", title);
}

void time_in_turns(std::vector<Candidate>& candidates, const Product& product, const GemmTrial& trial, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Candidate& each : candidates) each.seconds.push_back(trial.seconds([&] { product.run(*each.provider); }));
  }
}

const Candidate& fastest_of(const std::vector<Candidate>& candidates) {
  return *std::ranges::min_element(candidates, {}, &Candidate::median);
}

void keep_quick(std::vector<Candidate>& candidates, const Product& probe, const std::string& title, const GemmTrial& trial) {
  time_in_turns(candidates, probe, trial, kProbeRounds);
  const double fastest = fastest_of(candidates).median();
  std::erase_if(candidates, [&](const Candidate& each) {
    const double ratio = each.median() / fastest;
    if (ratio > kHopeless)
      trial.report(fmt::format("{}: '{}' is not chosen: {:.0f} times as slow as another", title, each.name, ratio));
    return ratio > kHopeless;
  });
  for (Candidate& each : candidates) each.seconds.clear();
}

const Candidate& fastest_or_usual(const std::vector<Candidate>& candidates, const std::string& usual) {
  const Candidate& fastest = fastest_of(candidates);
  const auto kept = std::ranges::find(candidates, usual, &Candidate::name);
  return kept != candidates.end() && fastest.median() > (1 - kLeastGain) * kept->median() ? *kept : fastest;
}

std::string choose_one(const GemmShape& shape, const std::string& usual, const GemmTrial& trial) {
  const std::string title = fmt::format("gemm {} of {} x {} x {}", name_of(gemm_class(shape)), shape.m, shape.n, shape.k);
  std::vector<Candidate> candidates = candidates_for(shape, trial);
  const auto probed = [](int64_t size) { return std::min(size, kProbe); };
  const GemmShape small{shape.kind, shape.dtype, probed(shape.m), probed(shape.n), probed(shape.k), shape.widens};
  if (small != shape) {
    const Product probe(small);
    keep_right(candidates, probe, title, trial);
    keep_quick(candidates, probe, title, trial);
  }
  const Product product(shape);
  keep_right(candidates, product, title, trial);
  if (candidates.size() == 1) return candidates[0].name;
  time_in_turns(candidates, product, trial, kMinRounds);
  const double rounds = kSecondsAProvider / fastest_of(candidates).median();
  time_in_turns(candidates, product, trial, static_cast<int>(std::clamp<double>(rounds, kMinRounds, kMaxRounds)) - kMinRounds);
  const std::string& chosen = fastest_or_usual(candidates, usual).name;
  std::string speeds;
  for (const Candidate& each : candidates) speeds += fmt::format(" {} {:.3g},", each.name, 2e-9 * work(shape) / each.median());
  trial.report(fmt::format("{}:{} in GFLOP/s; chosen: {}", title, speeds.substr(0, speeds.size() - 1), chosen));
  return chosen;
}

}  // namespace

GemmTrial timed_gemm_trial(std::function<void(const std::string& line)> report) {
  GemmTrial trial;
  trial.report = std::move(report);
  trial.seconds = [](const std::function<void()>& product) {
    const auto begin = std::chrono::steady_clock::now();
    product();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  return trial;
}

GemmChoice choose_gemm(const std::vector<GemmShape>& shapes, const GemmTrial& trial, GemmChoice known) {
  std::map<GemmClass, GemmShape> largest;
  for (const GemmShape& shape : shapes) {
    if (work(shape) == 0 || known.by_class.contains(gemm_class(shape))) continue;
    const auto [entry, is_new] = largest.try_emplace(gemm_class(shape), shape);
    if (!is_new && work(shape) > work(entry->second)) entry->second = shape;
  }
  const at::NoGradGuard no_grad;
  for (const auto& [gemm_class, shape] : largest) {
    known.by_class[gemm_class] = choose_one(shape, known.provider(gemm_class), trial);
  }
  return known;
}

}  // namespace zt
