#include "step_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace zt {

StepSums::StepSums(const ModelInfo& model) : model_(model) {
  for (int stat = 0; stat < static_cast<int>(model.stats.size()); ++stat) {
    for (int position = 0; position < static_cast<int>(model.positions.size()); ++position) {
      if (model.positions[position].layer == model.stats[stat].layer) places_.emplace_back(stat, position);
    }
  }
}

void StepSums::clear() {
  losses_.clear();
  stats_.clear();
}

void StepSums::discard(int micro_batch) {
  for (auto& [term, parts] : losses_) parts.erase(micro_batch);
  for (auto& [stat, parts] : stats_) parts.erase(micro_batch);
}

void StepSums::add(Parts& parts, int micro_batch, const at::Tensor& value) {
  at::Tensor& sum = parts[micro_batch];
  sum = sum.defined() ? sum + value : value;
}

at::Tensor StepSums::total(const Parts& parts) {
  at::Tensor total;
  for (const auto& [micro_batch, sum] : parts) total = total.defined() ? total + sum : sum;
  return total;
}

void StepSums::add_loss(int position, int micro_batch, const std::string& term, const at::Tensor& value) {
  add(losses_[{position, term}], micro_batch, value);
}

void StepSums::add_stat(int stat, int position, int micro_batch, const at::Tensor& values) {
  add(stats_[{stat, position}], micro_batch, values.detach().to(at::kDouble));
}

at::Tensor StepSums::losses_by_position() const {
  std::vector<double> sums;
  for (int position = 0; position < static_cast<int>(model_.positions.size()); ++position) {
    for (const LossInfo& term : model_.positions[static_cast<size_t>(position)].losses) {
      const auto found = losses_.find({position, term.name});
      sums.push_back(found == losses_.end() ? 0 : total(found->second).item<double>());
    }
  }
  return at::tensor(sums, at::kDouble);
}

std::vector<LossSum> StepSums::add_positions(const at::Tensor& by_position) const {
  std::vector<LossSum> sums;
  for (const LossInfo& term : model_.losses) sums.push_back({term, 0});
  const auto* next = by_position.const_data_ptr<double>();
  for (const PositionInfo& position : model_.positions) {
    for (const LossInfo& term : position.losses)
      std::ranges::find(sums, term.name, [](const LossSum& sum) { return sum.term.name; })->sum += *next++;
  }
  return sums;
}

at::Tensor StepSums::stats_by_position() const {
  std::vector<at::Tensor> parts;
  for (const auto& place : places_) {
    const auto found = stats_.find(place);
    parts.push_back(found == stats_.end() ? at::zeros({model_.stats[place.first].size}, at::kDouble)
                                          : total(found->second).cpu());
  }
  return parts.empty() ? at::zeros({0}, at::kDouble) : at::cat(parts);
}

std::map<std::string, at::Tensor> StepSums::add_stats(const at::Tensor& by_position) const {
  std::map<std::string, at::Tensor> sums;
  int64_t begin = 0;
  for (const auto& [stat, position] : places_) {
    const ModelStat& info = model_.stats[stat];
    const at::Tensor part = by_position.narrow(0, begin, info.size);
    at::Tensor& sum = sums[info.name];
    sum = sum.defined() ? sum + part : part.clone();
    begin += info.size;
  }
  return sums;
}

}  // namespace zt
