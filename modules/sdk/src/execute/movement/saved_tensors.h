// Finds the tensors that autograd saves while a layer runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace zt {

// Refers to tensors without keeping them.
using SavedTensors = std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>;

// Returns whether the tensor has elements, but EVICT_VALUE has taken its storage's bytes out of memory.
bool is_away(const at::Tensor& tensor);

struct SavedList {
  SavedTensors* to = nullptr;
  std::shared_ptr<const std::string> layer = {};
};

// While it exists, what the autograd graphs of this thread save is added to the list: views of these tensors, which the graphs
// own. Gradients do not change. A backward that needs one which was changed in place, or which is not in memory because another
// layer's graph owns it, throws an error with the name of the layer.
class SavedTensorsScope {
 public:
  // `to`: null to add nothing. `layer`: the name of what runs, for messages.
  SavedTensorsScope(SavedTensors* to, const std::string& layer);
  ~SavedTensorsScope();
  SavedTensorsScope(const SavedTensorsScope&) = delete;
  SavedTensorsScope& operator=(const SavedTensorsScope&) = delete;

 private:
  const SavedList before_;
};

}  // namespace zt
