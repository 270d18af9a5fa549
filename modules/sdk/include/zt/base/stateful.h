// What a checkpoint saves and loads: one walk for both directions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "zt/base/box.h"
#include "zt/base/value.h"

namespace zt {

// A shard of a logical tensor: the boxes concatenated row-major, of which this rank holds [first, first + count) in `data`
// (flat, contiguous).
struct Piece {
  std::vector<Box> boxes;
  int64_t first = 0;
  int64_t count = 0;
  at::Tensor data;
};

class Visitor {
 public:
  virtual ~Visitor();
  virtual bool is_load() const = 0;
  // A tensor that is logically [shape]; this rank holds `piece`. A save reads piece.data, a load writes into it.
  // Several ranks may hold the same elements, which are equal then.
  virtual void tensor(const std::string& name, const std::vector<int64_t>& shape, Piece piece) = 0;
  // What people want to know of the tensor that was given last; a save keeps it. Equal on all ranks.
  virtual void attributes(const Value::Table&) {}
  // All tensors of an object were given: afterwards those of a load hold their values.
  virtual void end_of_tensors() = 0;
  // A JSON-like value, equal on all ranks. A load replaces it.
  virtual void value(const std::string& name, Value& value) = 0;
  // States that every name which begins with one of `of` belongs to a thing of this kind: optimizer state to "adamw". To be
  // called first. A load refuses such names of a checkpoint that was saved with another kind, or leaves them as they are where it
  // takes what fits. A checkpoint that states no kind is not compared.
  virtual void kind(const std::string&, const std::string&, const std::vector<std::string>&) {}
};

class Stateful {
 public:
  virtual ~Stateful();
  // Walks all state in an order that depends on the object's structure only. Collective when state is spread over ranks.
  virtual void visit(Visitor& visitor) = 0;
};

}  // namespace zt
