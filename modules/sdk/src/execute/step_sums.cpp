#include "step_sums.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

namespace zt {

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

void StepSums::add_loss(const std::string& term, int micro_batch, const at::Tensor& value) {
  add(losses_[term], micro_batch, value);
}

void StepSums::add_stat(int stat, int micro_batch, const at::Tensor& values) {
  add(stats_[stat], micro_batch, values.detach().to(at::kDouble));
}

std::vector<LossSum> StepSums::losses(const ModelInfo& model) const {
  std::vector<LossSum> sums;
  for (const LossInfo& term : model.losses) {
    const auto found = losses_.find(term.name);
    sums.push_back({term, found == losses_.end() ? 0 : total(found->second).item<double>()});
  }
  return sums;
}

at::Tensor StepSums::stats(const ModelInfo& model) const {
  int64_t size = 0;
  for (const ModelStat& stat : model.stats) size += stat.size;
  at::Tensor all = at::zeros({size}, at::kDouble);
  int64_t begin = 0;
  for (size_t i = 0; i < model.stats.size(); ++i) {
    if (const auto found = stats_.find(static_cast<int>(i)); found != stats_.end())
      all.narrow(0, begin, model.stats[i].size).copy_(total(found->second));
    begin += model.stats[i].size;
  }
  return all;
}

}  // namespace zt
