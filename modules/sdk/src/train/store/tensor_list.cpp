#include "tensor_list.h"

#include "zt/base/error.h"

namespace zt {

TensorList::TensorList(const ModelInfo& model, at::ScalarType computed) : parameters_(static_cast<int>(model.params.size())) {
  for (const ParamInfo& param : model.params) all_.push_back({param.name, param.logical_shape(), computed, true});
  for (const BufferInfo& buffer : model.buffers)
    all_.push_back({buffer.name, buffer.initial.sizes().vec(), buffer.initial.scalar_type(), false});
}

int TensorList::find(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].name == name) return static_cast<int>(i);
    names.push_back(all_[i].name);
  }
  const std::string found = nearest(name, names);
  misuse("the model has no parameter '{}'{}", name,
         found.empty() ? std::string(": print(model) lists them") : fmt::format(": did you mean '{}'?", found));
}

int TensorList::find_parameter(const std::string& name, const char* what) const {
  const int found = find(name);
  if (is_buffer(found)) misuse("'{}' is a tensor that its layer changes itself, no parameter: it has no {}", name, what);
  return found;
}

}  // namespace zt
