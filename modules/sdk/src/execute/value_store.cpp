#include "zt/execute/value_store.h"

#include <ATen/TensorOperators.h>

namespace zt {

void ValueStore::begin(const ModelInfo& model, int micro_batches) {
  first_ = {0};
  for (const PositionInfo& position : model.positions)
    first_.push_back(first_.back() + static_cast<int>(position.outputs.size()));
  entries_.clear();
  entries_.resize(static_cast<size_t>(first_.back()) * static_cast<size_t>(micro_batches));
}

size_t ValueStore::place(const Edge& output, int micro_batch) const {
  return static_cast<size_t>(micro_batch) * static_cast<size_t>(first_.back()) +
         static_cast<size_t>(first_[static_cast<size_t>(output.position)] + output.output);
}

void ValueStore::add_gradient(const Edge& output, int micro_batch, const at::Tensor& gradient) {
  if (!gradient.defined()) return;
  at::Tensor& sum = at(output, micro_batch).gradient;
  sum = sum.defined() ? sum + gradient : gradient;
}

at::Tensor ValueStore::take_gradient(const Edge& output, int micro_batch) {
  return std::exchange(at(output, micro_batch).gradient, at::Tensor());
}

}  // namespace zt
