// The names of the tensors of a model's state.
#pragma once

#include <string>
#include <vector>

#include "zt/model/model.h"
#include "zt/train/tensors.h"

namespace zt {

// An index counts the parameters, then the buffers of layers: parameters have the index of ModelInfo::params.
class TensorList {
 public:
  // `computed`: the dtype in which layers see parameters.
  TensorList(const ModelInfo& model, at::ScalarType computed);

  const std::vector<ModelTensor>& all() const { return all_; }
  const ModelTensor& operator[](int tensor) const { return all_[tensor]; }
  // Returns the index of the tensor. Throws Misuse with the nearest name.
  int find(const std::string& name) const;
  // Returns the index of the parameter. Throws Misuse as `find`, and for a buffer of a layer, which lacks `what`.
  int find_parameter(const std::string& name, const char* what) const;
  bool is_buffer(int tensor) const { return tensor >= parameters_; }
  size_t buffer_index(int tensor) const { return static_cast<size_t>(tensor - parameters_); }

 private:
  int parameters_;
  std::vector<ModelTensor> all_;
};

}  // namespace zt
