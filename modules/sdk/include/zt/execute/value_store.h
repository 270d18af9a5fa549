// The values between positions within a step: the outputs of each position and micro-batch, and their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "zt/model/model.h"

namespace zt {

// F and B put values here and take them from here, as do actions that move values between ranks. A value that was sent away and
// is not read again may be dropped.
//
// Threads: the rank's thread only.
class ValueStore {
 public:
  // Drops all values and makes room for `micro_batches` micro-batches of the model.
  void begin(const ModelInfo& model, int micro_batches);

  void put(const Edge& output, int micro_batch, at::Tensor value) { at(output, micro_batch).value = std::move(value); }
  // Returns the value; undefined if there is none.
  const at::Tensor& get(const Edge& output, int micro_batch) const { return at(output, micro_batch).value; }
  // Returns the gradient, which stays; undefined if nothing was added.
  const at::Tensor& gradient(const Edge& output, int micro_batch) const { return at(output, micro_batch).gradient; }
  // Adds to the gradient of the output, unless `gradient` is undefined. The sum depends on the order of the calls: the latest
  // reader comes first.
  void add_gradient(const Edge& output, int micro_batch, const at::Tensor& gradient);
  // Returns the gradient and drops it; undefined if nothing was added.
  at::Tensor take_gradient(const Edge& output, int micro_batch);
  // Drop the values or the gradients of all outputs of a position, or both.
  void drop_values(int position, int micro_batch) {
    for (Entry& entry : outputs_of(position, micro_batch)) entry.value.reset();
  }
  void drop_gradients(int position, int micro_batch) {
    for (Entry& entry : outputs_of(position, micro_batch)) entry.gradient.reset();
  }
  void drop(int position, int micro_batch) {
    drop_values(position, micro_batch);
    drop_gradients(position, micro_batch);
  }

 private:
  struct Entry {
    at::Tensor value, gradient;
  };
  std::span<Entry> outputs_of(int position, int micro_batch) {
    return {entries_.data() + place({position, 0}, micro_batch), static_cast<size_t>(first_[position + 1] - first_[position])};
  }
  size_t place(const Edge& output, int micro_batch) const;
  Entry& at(const Edge& output, int micro_batch) { return entries_[place(output, micro_batch)]; }
  const Entry& at(const Edge& output, int micro_batch) const { return entries_[place(output, micro_batch)]; }

  std::vector<int> first_;  // by position: number of the outputs before it; one more at the end
  std::vector<Entry> entries_;
};

}  // namespace zt
