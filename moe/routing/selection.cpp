#include "routing/selection.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <limits>

#include "routing/noise.h"
#include "routing/routes.h"
#include "routing/token_axis.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt {
ZT_DEFINE_OBJECT(moe::Selection, "Selection")
}

namespace zt::moe {

namespace {

constexpr double kLeast = -std::numeric_limits<double>::infinity();

at::Tensor on_host(const at::Tensor& values) {
  return values.detach().cpu();
}

// The experts with the largest scores, to which a bias may be added, or with the largest logits plus gumbel noise.
class TopKSelection final : public Selection {
 public:
  explicit TopKSelection(const RouterOptions& options)
      : options_(options), top_k_{options.top_k, options.groups, options.top_groups} {}

  std::string kind() const override { return "top_k"; }
  at::Tensor select(const Candidates& candidates, Context& context) const override {
    if (options_.draws() && (options_.draw_always || context.mode == Mode::train)) return drawn(candidates, context);
    const at::Tensor scores = on_host(candidates.scores);
    return select_top_k(options_.has_bias ? scores + on_host(extras_of(context).buffer("bias")) : scores, top_k_);
  }

 private:
  at::Tensor drawn(const Candidates& candidates, Context& context) const {
    const at::Tensor logits = on_host(candidates.logits);
    const TokenShape shape{candidates.samples, candidates.tokens, candidates.experts()};
    const at::Tensor noisy = logits + gumbel_noise(shape, context).to(logits);
    return options_.draws_all() ? select_top_k(noisy, top_k_) : with_drawn_rest(select_top_k(logits, top_k_), noisy);
  }

  // Returns the first experts of `experts`, and after them those with the largest noisy logits.
  at::Tensor with_drawn_rest(const at::Tensor& experts, const at::Tensor& noisy) const {
    const at::Tensor first = experts.narrow(1, 0, 1);
    TopK rest = top_k_;
    if (--rest.count == 0) return first.contiguous();
    return at::cat({first, select_top_k(noisy.scatter(1, first, kLeast), rest)}, 1);
  }

  RouterOptions options_;
  TopK top_k_;
};

// Each expert chooses tokens of each sample, as many as the capacity allows.
class ExpertChoice final : public Selection {
 public:
  explicit ExpertChoice(const RouterOptions& options) : capacity_(*options.capacity), top_k_(options.top_k) {}

  std::string kind() const override { return "expert choice"; }
  int64_t routes(const RouterOptions& options) const override { return options.experts; }
  bool fits_capacity() const override { return true; }
  at::Tensor select(const Candidates& candidates, Context& context) const override {
    at::Tensor scores = on_host(candidates.scores);
    if (candidates.counted.defined()) scores = scores.masked_fill(candidates.counted.logical_not().unsqueeze(1), kLeast);
    const bool is_training = context.mode == Mode::train;
    const int64_t room = capacity_.rows(is_training, candidates.tokens, top_k_, candidates.experts());
    return select_by_experts(scores, candidates.samples, room);
  }

 private:
  CapacityOptions capacity_;
  int64_t top_k_;
};

// The experts of a batch field.
class RecordedSelection final : public Selection {
 public:
  explicit RecordedSelection(std::string field) : field_(std::move(field)) {}

  std::string kind() const override { return "recorded"; }
  at::Tensor select(const Candidates& candidates, Context& context) const override {
    const at::Tensor experts = context.batch(field_).cpu();
    check_routes(experts, candidates.sizes(), name());
    return experts.reshape({-1, candidates.routes}).clone();
  }
  void check_batch(const RouterOptions& options, const BatchField& batch) const override {
    const at::Tensor experts = batch(field_);
    if (!experts.defined()) misuse("{} are missing: the batch has no such field", name());
    if (experts.is_meta()) return;
    if (experts.dim() != 3) misuse("{} must be int64 [samples, tokens, {}], got {}", name(), options.top_k, describe(experts));
    check_routes(experts.cpu(), {experts.size(0), experts.size(1), options.top_k, options.experts}, name());
  }

 private:
  std::string name() const { return fmt::format("the recorded routes '{}'", field_); }

  std::string field_;
};

// The experts in turn.
class BalancedSelection final : public Selection {
 public:
  std::string kind() const override { return "balanced"; }
  at::Tensor select(const Candidates& candidates, Context& context) const override {
    return balanced_routes(candidates.samples, token_places(candidates.tokens, context), candidates.routes, candidates.experts());
  }
};

// Throws Misuse if a token has an expert twice: its weight would count twice.
void check_distinct(const at::Tensor& experts, const std::string& name) {
  const int64_t routes = experts.size(2);
  const auto* first = experts.const_data_ptr<int64_t>();
  for (const auto* own = first; own != first + experts.numel(); own += routes) {
    for (int64_t i = 1; i < routes; ++i) {
      if (own[i] < 0 || std::find(own, own + i, own[i]) == own + i) continue;
      const int64_t token = (own - first) / routes;
      misuse("{} must differ for each token, but token {} of sample {} has expert {} twice: give -1 for an empty route", name,
             token % experts.size(1), token / experts.size(1), own[i]);
    }
  }
}

}  // namespace

std::shared_ptr<const Selection> make_selection(const RouterOptions& options) {
  if (options.select) return options.select;
  if (options.routes == "balanced") return std::make_shared<BalancedSelection>();
  if (!options.routes.empty()) return std::make_shared<RecordedSelection>(options.routes);
  if (options.choice == Choice::expert) return std::make_shared<ExpertChoice>(options);
  return std::make_shared<TopKSelection>(options);
}

void check_routes(const at::Tensor& experts, const RouteSizes& wanted, const std::string& name) {
  const std::array sizes{wanted.samples, wanted.tokens, wanted.routes};
  if (experts.scalar_type() != at::kLong || experts.sizes() != at::IntArrayRef(sizes))
    misuse("{} must be int64 [{}], got {}", name, fmt::join(sizes, ", "), describe(experts));
  if (experts.numel() > 0 && (experts.min().item<int64_t>() < -1 || experts.max().item<int64_t>() >= wanted.experts))
    misuse("{} name experts outside of 0 to {}", name, wanted.experts - 1);
  check_distinct(experts.contiguous(), name);
}

}  // namespace zt::moe
