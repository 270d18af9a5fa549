// The statistics of layers in a step, and what layers do with them.
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "layer_context.h"
#include "nonfinite_rows.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

void ComputeState::begin_sums() {
  sums_.clear();
  updated_layers_.clear();
  sent_.clear();
  for (auto& [position, nanoseconds] : exchange_ns_) nanoseconds = 0;
}

// Returns the index in ModelInfo::stats of a statistic of the layer at `position`; -1: it declares none of this name.
int ComputeState::find_stat(int position, const std::string& name) const {
  const ModelInfo& info = model_info();
  const auto found = std::ranges::find(info.stats, info.positions[position].name + "." + name, &ModelStat::name);
  return found == info.stats.end() ? -1 : static_cast<int>(found - info.stats.begin());
}

void ComputeState::LayerContext::stat(const std::string& name, const at::Tensor& values) {
  if (recompute || mode == Mode::generate || values.is_meta()) return;
  const ModelInfo& model = compute_.model_info();
  const std::string& layer = model.positions[position_index_].name;
  const int stat = compute_.find_stat(position_index_, name);
  if (stat < 0) misuse("the statistic '{}' is not declared in the io of layer '{}'", name, layer);
  const int64_t size = model.stats[stat].size;
  if (values.numel() != size)
    misuse("the statistic '{}' of layer '{}' has {} numbers, got {}", name, layer, size, describe(values));
  compute_.sums_.add_stat(stat, position_index_, micro_batch_index_, values.reshape({size}));
}

void ComputeState::LayerContext::sent(const std::string& axis, int64_t bytes, Pattern pattern) {
  SentBytes& sent = compute_.sent_[axis];
  (pattern == Pattern::collective ? sent.collective : sent.all_to_all) += bytes;
  const int stat = mode == Mode::generate ? -1 : compute_.find_stat(position_index_, "bytes_sent");
  if (stat < 0) return;
  compute_.sums_.add_stat(stat, position_index_, micro_batch_index_, at::tensor({static_cast<double>(bytes)}, at::kDouble));
}

void ComputeState::LayerContext::watch(const std::string& name, const at::Tensor& values) {
  if (!compute_.searches_nonfinite_ || !compute_.nonfinite_.empty()) return;
  if (const int64_t sample = first_nonfinite_row(values); sample >= 0)
    compute_.nonfinite_ =
        fmt::format("the {} of layer '{}' in sample {}", name, compute_.model_info().positions[position_index_].name, sample);
}

void ComputeState::add_exchange_seconds() {
  if (mode_ == Mode::generate) return;
  for (auto& [position, nanoseconds] : exchange_ns_) {
    const double seconds = static_cast<double>(std::exchange(nanoseconds, 0)) * 1e-9;
    sums_.add_stat(find_stat(position, "seconds"), position, 0, at::tensor({seconds, 1.0}, at::kDouble));
  }
}

// Returns the statistics of the layer at `position` by their names within the layer.
Stats ComputeState::stats_of(int position, const Stats& stats) const {
  const ModelInfo& info = model_info();
  const size_t prefix = info.positions[position].name.size() + 1;
  Stats own;
  for (const ModelStat& stat : info.stats) {
    if (stat.layer == info.positions[position].layer) own.emplace(stat.name.substr(prefix), stats.at(stat.name));
  }
  return own;
}

void ComputeState::update_layer(int position, const Stats& stats) {
  const int layer = model_info().positions[position].layer;
  if (!updated_layers_.insert(layer).second) return;
  LayerBuffers buffers;
  for (size_t i = 0; i < model_info().buffers.size(); ++i) {
    const BufferInfo& buffer = model_info().buffers[i];
    if (buffer.layer != layer) continue;
    const at::Tensor& values = state_.buffers[i];
    buffers[buffer.local_name] = buffer.trainable ? values : values.clone();  // a frozen one keeps its values
  }
  model_->positions()[position].layer->update(stats_of(position, stats), buffers);
}

Stats ComputeState::report(const Stats& stats) const {
  Stats shown;
  for (size_t p = 0; p < model_->positions().size(); ++p) {
    const PositionInfo& info = model_info().positions[p];
    if (info.stats.empty() || stats.empty()) continue;  // a program without NORM has no sums
    for (auto& [name, values] : model_->positions()[p].layer->report(stats_of(static_cast<int>(p), stats)))
      shown[info.name + "." + name] = values;
  }
  return shown;
}

}  // namespace zt
