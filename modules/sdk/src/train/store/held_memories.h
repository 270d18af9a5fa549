// The memories of a rank that its resources lie in.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "zt/execute/executor.h"

namespace zt {

struct HeldMemory {
  std::string kind;  // under which reports count it: "parameters", "master", "gradients", "optimizer", "staging" ...
  at::Tensor bytes;  // all of it, uint8; of memory that the ranks of a machine have together, the part that this rank owns
};

// Returns each memory once, although several tensors may be views of it.
std::vector<HeldMemory> held_memories(const StepState& state);

}  // namespace zt
