// Collects what objects hold, by name, in one walk over each object that has state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "reshard/region.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Pairs of a prefix of names ("" or "actor/") and what is saved under it: an object with state (a trainer, a data stream), or a
// plain value, whose name is the prefix without its slash.
using Objects = std::vector<std::pair<std::string, Value>>;

// This rank's part of the logical tensor `name`: `data`, flat and contiguous, is its elements.
struct Part {
  std::string name;
  std::vector<int64_t> shape;
  Region region;
  at::Tensor data;
  Value::Table attributes = {};
};

// The kind of a thing, under `name`, to which all belongs whose name begins with one of `of` (Visitor::kind).
struct StatedKind {
  std::string name, kind;
  std::vector<std::string> of;

  bool holds(const std::string& other) const;
};

struct Contents {
  std::vector<Part> parts;  // in the order of the walk
  Value::Table values;      // by name, kinds among them
  std::vector<StatedKind> kinds;
};

// How tensors within plain values are taken. Such a tensor is saved as a tensor of its own, named by its place in the value
// ("value_tensors/counter/mean", "value_tensors/counter/lists/1"), to which the value refers.
enum class ValueTensors : uint8_t {
  saved,     // parts, as on the rank whose values are saved
  referred,  // references only, as on the other ranks
  left_out,  // the value is nil: a load only asks which values there are
};

// Collective where an object's walk is. Misuse for an object without state and for a name that occurs twice.
Contents contents_of(const Objects& objects, ValueTensors tensors);

// Calls each(reference) for every reference to a tensor in a saved value; `each` may replace it.
void for_each_reference(Value& value, const std::function<void(Value& reference, const std::string& tensor)>& each);

}  // namespace zt::ckpt
