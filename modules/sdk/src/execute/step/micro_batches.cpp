#include "micro_batches.h"

namespace zt {

void MicroBatches::begin(std::vector<Batch> micro_batches, int count, int64_t first_sample) {
  count_ = count;
  parts_.clear();
  for (Batch& fields : micro_batches) {
    const int64_t samples = samples_of(fields);
    parts_.push_back({std::move(fields), first_sample});
    first_sample += samples;
  }
}

void MicroBatches::set(int index, Batch fields, int64_t first_sample) {
  parts_.resize(static_cast<size_t>(index));
  parts_.push_back({std::move(fields), first_sample});
}

std::vector<Batch> MicroBatches::all() const {
  std::vector<Batch> micro_batches;
  for (const Part& part : parts_) micro_batches.push_back(part.fields);
  return micro_batches;
}

bool MicroBatches::need_equal_shapes() const {
  for (int position = 0; position < layers_.count(); ++position) {
    const ExchangeLayer* exchange = layers_.exchange(position);
    if (exchange && exchange->needs_equal_batches()) return true;
  }
  return false;
}

Counts MicroBatches::counts() const {
  Counts total;
  for (int index = 0; index < static_cast<int>(parts_.size()); ++index) {
    const Counts counted = counts(index);
    total.tokens += counted.tokens;
    total.samples += counted.samples;
  }
  return total;
}

Counts MicroBatches::counts(int index) const {
  const Batch& batch = fields(index);
  const auto field = [&](const std::string& name) {
    const auto found = batch.find(name);
    return found == batch.end() ? at::Tensor() : found->second;
  };
  Counts total{.tokens = 0, .samples = samples_of(batch)};
  const std::string* counter = nullptr;
  for (int position = 0; position < layers_.count(); ++position) {
    if (!layers_.runs(position)) continue;
    const Counts counts = with_layer_name(position, index, [&] { return layers_.layer(position).count(field); });
    if (counts.tokens == 0) continue;
    if (counter && total.tokens != counts.tokens) {
      misuse(
          "the loss layers '{}' and '{}' count {} and {} valid tokens: the terms of one objective are divided by one number; "
          "give them the same labels or make one a loss per sample",
          *counter, layers_.info(position).name, total.tokens, counts.tokens);
    }
    total.tokens = counts.tokens;
    counter = &layers_.info(position).name;
  }
  return total;
}

}  // namespace zt
