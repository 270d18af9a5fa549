// What objects hold, by name: one walk over anything that has state.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "region.h"
#include "zt/value.h"

namespace zt::ckpt {

// A prefix of names ("" or "actor/") and what stands behind it: an object with state (a trainer, a data stream) or a plain value,
// whose name is the prefix without its slash.
using Objects = std::vector<std::pair<std::string, Value>>;

// This rank's part of the logical tensor `name`: `data`, flat and contiguous, is its elements.
struct Part {
  std::string name;
  std::vector<int64_t> shape;
  Region region;
  at::Tensor data;
  Value::Table attributes = {};
};

struct Contents {
  std::vector<Part> parts;  // in the order of the walk
  Value::Table values;      // by name
};

// Collective where an object's walk is. Misuse for an object without state and for a name that occurs twice.
Contents contents_of(const Objects& objects);

}  // namespace zt::ckpt
