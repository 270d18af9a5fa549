// The buffers of passes on a rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "zt/program/pass_buffer.h"

namespace zt {

struct PassTensor {
  PassBuffer buffer;
  at::Tensor values;
};

// Registers the resource type of a pass's buffer, by which the attribute `buffers` of actions names it, and returns its id.
// Throws Misuse as register_resource. Thread-safe.
ResourceId register_pass_buffer(const std::string& name, Index of);

}  // namespace zt
