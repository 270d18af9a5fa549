// Collects the tensors and values of objects, by name, in one walk over each object that has state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zt/base/stateful.h"
#include "zt/base/value.h"
#include "zt/reshard/region.h"

namespace zt::ckpt {

// Pairs of a prefix of names ("" or "actor/") and a value to save under it: an object with state (a trainer, a data stream) or a
// plain value. The name of a plain value is the prefix without its slash.
using Objects = std::vector<std::pair<std::string, Value>>;

// This rank's part of the tensor `name`. `data` has the elements of `region`, flat and contiguous, or else `source` has them.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;
  Region region;
  at::Tensor data;
  std::shared_ptr<PieceSource> source = {};
  Value::Table attributes = {};
  std::optional<Visitor::Rows> rows = {};  // Visitor::rows_of_ranks

  at::ScalarType dtype() const { return source ? source->dtype() : data.scalar_type(); }
};

// A kind such as "adamw", saved as the value `name`. All names that begin with one of `of` belong to it (Visitor::kind).
struct StatedKind {
  std::string name, kind;
  std::vector<std::string> of;

  // True if `other` begins with one of `of`.
  bool holds(const std::string& other) const;
};

struct Contents {
  std::vector<TensorPart> parts;  // in the order of the walk
  Value::Table values;            // by name, kinds among them
  std::vector<StatedKind> kinds;
  std::vector<std::string> ignored;  // beginnings of names that a load leaves out (Visitor::ignore)
};

// How contents_of treats tensors within plain values. Such a tensor is saved as a separate tensor, named by its place in the
// value ("value_tensors/counter/mean", "value_tensors/counter/lists/1"). The value refers to it by that name.
enum class ValueTensors : uint8_t {
  saved,     // adds a part per tensor: for rank 0, whose values are saved
  referred,  // adds references only: for the other ranks
  left_out,  // makes the whole value nil: a load needs only the values' names
};

// Collective if the walk over an object is. Throws Misuse for an object without state and for a name that occurs twice.
Contents contents_of(const Objects& objects, ValueTensors tensors);

// Calls each(reference) for every reference to a tensor in a saved value; `each` may replace it.
void for_each_reference(Value& value, const std::function<void(Value& reference, const std::string& tensor)>& each);

}  // namespace zt::ckpt
