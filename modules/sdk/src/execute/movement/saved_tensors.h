// Finds the tensors that autograd saves while a layer runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace zt {

// Refers to tensors without keeping them.
using SavedTensors = std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>;

// While it exists, what the autograd graphs of this thread save is added to the list: views of these tensors, which the graphs
// own. Gradients do not change.
class SavedTensorsScope {
 public:
  explicit SavedTensorsScope(SavedTensors* to);  // null: adds nothing
  ~SavedTensorsScope();
  SavedTensorsScope(const SavedTensorsScope&) = delete;
  SavedTensorsScope& operator=(const SavedTensorsScope&) = delete;

 private:
  SavedTensors* const before_;
};

}  // namespace zt
