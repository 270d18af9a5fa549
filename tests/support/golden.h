// Golden files: tensors that PyTorch computed once, checked in as safetensors under tests/golden/.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace zt::test {

// Tensors by name of tests/golden/NAME.safetensors. Throws when the file is missing or malformed.
std::map<std::string, at::Tensor> golden(const std::string& name);

}  // namespace zt::test
