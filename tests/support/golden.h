// Golden files: tensors that PyTorch has computed, checked in as safetensors under tests/golden/.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace zt::test {

// Returns the tensors of tests/golden/NAME.safetensors by name. Throws if the file is missing or malformed.
std::map<std::string, at::Tensor> golden(const std::string& name);

}  // namespace zt::test
