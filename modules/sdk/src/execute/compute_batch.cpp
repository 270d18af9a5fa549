// Functions of ComputeState that read its batch, or the outputs of the last layer.
#include <algorithm>

#include "compute.h"
#include "zt/base/error.h"

namespace zt {

bool ComputeState::needs_equal_batches() const {
  return std::ranges::any_of(exchanges_, [](const ExchangeLayer* layer) { return layer && layer->needs_equal_batches(); });
}

std::vector<Batch> ComputeState::fields() const {
  std::vector<Batch> micro_batches;
  for (const Part& part : parts_) micro_batches.push_back(part.fields);
  return micro_batches;
}

Counts ComputeState::count() const {
  Counts total;
  for (int m = 0; m < micro_batches_; ++m) {
    const Counts counts = count(m);
    total.tokens += counts.tokens;
    total.samples += counts.samples;
  }
  return total;
}

Counts ComputeState::count(int micro_batch) const {
  const Batch& fields = parts_.at(static_cast<size_t>(micro_batch)).fields;
  const auto field = [&](const std::string& name) {
    const auto found = fields.find(name);
    return found == fields.end() ? at::Tensor() : found->second;
  };
  Counts total{.tokens = 0, .samples = samples_of(fields)};
  const NamedLayer* counter = nullptr;
  for (size_t p = 0; p < model_->positions().size(); ++p) {
    if (!runs_[p]) continue;
    const NamedLayer& use = model_->positions()[p];
    const Counts counts = with_layer_name(static_cast<int>(p), micro_batch, [&] { return use.layer->count(field); });
    if (counts.tokens == 0) continue;
    if (counter && total.tokens != counts.tokens) {
      misuse(
          "the loss layers '{}' and '{}' count {} and {} valid tokens: the terms of one objective are divided by one number; "
          "give them the same labels or make one a loss per sample",
          counter->name, use.name, total.tokens, counts.tokens);
    }
    total.tokens = counts.tokens;
    counter = &use;
  }
  return total;
}

std::map<std::string, at::Tensor> ComputeState::outputs(int micro_batch) const {
  std::map<std::string, at::Tensor> named;
  const int last = static_cast<int>(model_->positions().size()) - 1;
  int index = 0;
  for (const Output& output : model_info().positions.back().outputs) {
    const at::Tensor& value = state_.values.get({last, index++}, micro_batch);
    if (value.defined()) named[output.name] = value;
  }
  return named;
}

}  // namespace zt
