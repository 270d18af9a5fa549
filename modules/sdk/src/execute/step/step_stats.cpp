#include "step_stats.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/process/trace.h"

namespace zt {

namespace {

// Adds the time that `wait` takes to a number.
class TimedWait : public Work::State {
 public:
  TimedWait(Work work, int64_t& nanoseconds) : work_(std::move(work)), nanoseconds_(nanoseconds) {}

  bool done() override { return work_.done(); }
  void wait() override {
    const int64_t begin = now_ns();
    work_.wait();
    nanoseconds_ += now_ns() - begin;
  }
  void synchronize() override { work_.synchronize(); }

 private:
  Work work_;
  int64_t& nanoseconds_;
};

}  // namespace

StepStats::StepStats(const LayerTable& layers, const StepState& state) : StepSums(*state.model), layers_(layers), state_(state) {
  for (int p = 0; p < layers.count(); ++p) {
    if (layers.runs(p) && layers.exchange(p) && find(p, "seconds") >= 0) exchange_ns_[p] = 0;
  }
}

void StepStats::begin() {
  clear();
  updated_layers_.clear();
  sent_.clear();
  for (auto& [position, nanoseconds] : exchange_ns_) nanoseconds = 0;
}

// Returns the index in ModelInfo::stats of a statistic of the layer at `position`; -1: it declares none of this name.
int StepStats::find(int position, const std::string& name) const {
  const ModelInfo& model = *state_.model;
  const auto found = std::ranges::find(model.stats, model.positions[position].name + "." + name, &ModelStat::name);
  return found == model.stats.end() ? -1 : static_cast<int>(found - model.stats.begin());
}

void StepStats::check_loss(int position, const std::string& name, Per per) const {
  const auto is_it = [&](const LossInfo& declared) { return declared.name == name && declared.per == per; };
  if (std::ranges::any_of(state_.model->positions[position].losses, is_it)) return;
  misuse(
      "the loss '{}' per {} is not declared: give it in the layer's io, in Lua as nn.layer{{io = {{losses = {{{} = \"{}\"}}}}}}",
      name, word_of(per), name, word_of(per));
}

void StepStats::add_named_stat(int position, int micro_batch, const std::string& name, const at::Tensor& values) {
  const std::string& layer = state_.model->positions[position].name;
  const int stat = find(position, name);
  if (stat < 0) misuse("the statistic '{}' is not declared in the io of layer '{}'", name, layer);
  const int64_t size = state_.model->stats[stat].size;
  if (values.numel() != size)
    misuse("the statistic '{}' of layer '{}' has {} numbers, got {}", name, layer, size, describe(values));
  add_stat(stat, position, micro_batch, values.reshape({size}));
}

void StepStats::add_sent(int position, int micro_batch, const std::string& axis, int64_t bytes, Pattern pattern, bool has_stats) {
  SentBytes& sent = sent_[axis];
  (pattern == Pattern::collective ? sent.collective : sent.all_to_all) += bytes;
  const int stat = has_stats ? find(position, "bytes_sent") : -1;
  if (stat >= 0) add_stat(stat, position, micro_batch, at::tensor({static_cast<double>(bytes)}, at::kDouble));
}

Work StepStats::timed(int position, const std::function<Work()>& start) {
  const auto time = exchange_ns_.find(position);
  if (time == exchange_ns_.end()) return start();
  const int64_t begin = now_ns();
  Work work = start();
  time->second += now_ns() - begin;
  return Work(std::make_shared<TimedWait>(std::move(work), time->second));
}

void StepStats::add_exchange_seconds() {
  for (auto& [position, nanoseconds] : exchange_ns_) {
    const double seconds = static_cast<double>(std::exchange(nanoseconds, 0)) * 1e-9;
    add_stat(find(position, "seconds"), position, 0, at::tensor({seconds, 1.0}, at::kDouble));
  }
}

// Returns the statistics of the layer at `position` by their names within the layer.
Stats StepStats::of_layer(int position, const Stats& stats) const {
  const ModelInfo& model = *state_.model;
  const size_t prefix = model.positions[position].name.size() + 1;
  Stats own;
  for (const ModelStat& stat : model.stats) {
    if (stat.layer == model.positions[position].layer) own.emplace(stat.name.substr(prefix), stats.at(stat.name));
  }
  return own;
}

void StepStats::update_layer(int position, const Stats& stats) {
  const ModelInfo& model = *state_.model;
  const int layer = model.positions[position].layer;
  if (!updated_layers_.insert(layer).second) return;
  LayerBuffers buffers;
  for (size_t i = 0; i < model.buffers.size(); ++i) {
    const BufferInfo& buffer = model.buffers[i];
    if (buffer.layer != layer) continue;
    const at::Tensor& values = state_.buffers[i];
    buffers[buffer.local_name] = buffer.trainable ? values : values.clone();  // a frozen one keeps its values
  }
  extras_of(layers_.layer(position)).update(of_layer(position, stats), buffers);
}

Stats StepStats::report(const Stats& stats) const {
  Stats shown;
  for (int p = 0; p < layers_.count(); ++p) {
    const PositionInfo& info = layers_.info(p);
    if (info.stats.empty() || stats.empty()) continue;  // a program without NORM has no sums
    for (auto& [name, values] : extras_of(layers_.layer(p)).report(of_layer(p, stats))) shown[info.name + "." + name] = values;
  }
  return shown;
}

}  // namespace zt
