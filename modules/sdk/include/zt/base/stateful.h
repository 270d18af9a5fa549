// The interface between objects and checkpoints. An object visits its state in the same way for a save and for a load.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zt/base/box.h"
#include "zt/base/value.h"

namespace zt {

// Elements that do not lie in memory, or not as a whole. The functions throw Fault if they cannot be reached.
class PieceSource {
 public:
  virtual ~PieceSource();
  virtual at::ScalarType dtype() const = 0;
  // Copies elements [first, first + to.numel()) of the piece to `to`, or `from` to its elements from `first` on.
  virtual void read(int64_t first, at::Tensor to) const = 0;
  virtual void write(int64_t first, const at::Tensor& from) = 0;
  // Returns elements [first, first + count) as they are now, for another thread that reads them while their owner goes on: it
  // waits before it changes one that was not released. The source may outlive its owner.
  virtual std::shared_ptr<PieceSource> keep(int64_t first, int64_t count) const = 0;
  // Of a source that `keep` has returned: these elements are read soon, or not any more.
  virtual void prefetch(int64_t /*first*/, int64_t /*count*/) {}
  virtual void release(int64_t /*first*/, int64_t /*count*/) {}
};

// The part of a tensor that one rank saves. The boxes, each row-major, are concatenated to one sequence of elements. This rank
// holds its elements [first, first + count) in `data`, which is flat and contiguous, or else they are those of `source`.
struct Piece {
  std::vector<Box> boxes;
  int64_t first = 0;
  int64_t count = 0;
  at::Tensor data;
  std::shared_ptr<PieceSource> source = {};

  at::ScalarType dtype() const { return source ? source->dtype() : data.scalar_type(); }
};

class Visitor {
 public:
  virtual ~Visitor();
  virtual bool is_load() const = 0;
  // Whether this walk only finds out which tensors and values a load will replace: their contents are not read.
  virtual bool precedes_load() const { return false; }
  // Visits a tensor of global shape `shape`, of which this rank holds `piece`. A save reads its elements, a load writes them.
  // Several ranks may hold the same elements: these must be equal.
  virtual void tensor(const std::string& name, const std::vector<int64_t>& shape, Piece piece) = 0;
  // Describes the tensor of the last call of `tensor`, for people. A save keeps the attributes. Equal on all ranks.
  virtual void attributes(const Value::Table&) {}
  // States that the tensor of the last call of `tensor` has a row (dim 0) for each of some ranks. From a checkpoint with another
  // number of rows, a load gives their sum to the rank with row 0 and zeros to the others; with `dropped`, and from one with rows
  // of another shape, it gives zeros to all.
  enum class Rows : uint8_t { summed, dropped };
  virtual void rows_of_ranks(Rows) {}
  // Call after the last tensor of an object. When the call returns from a load, all tensors hold the loaded values.
  virtual void end_of_tensors() = 0;
  // States that the object has nothing under the names that begin with one of `prefixes`, although others of its kind have: a
  // load ignores them in a checkpoint. Call before the other functions.
  virtual void ignore(const std::vector<std::string>& /*prefixes*/) {}
  // Visits a JSON-like value, equal on all ranks. A load replaces it.
  virtual void value(const std::string& name, Value& value) = 0;
  // States that all names that begin with one of `prefixes` belong to an object of the kind `kind`: optimizer state to "adamw".
  // The kind is saved as the value `name`. Call before the other functions. If the checkpoint was saved with another kind, a load
  // refuses these names, or leaves them unchanged if it loads only what fits. A checkpoint without the value is not checked.
  virtual void kind(const std::string& /*name*/, const std::string& /*kind*/, const std::vector<std::string>& /*prefixes*/) {}
};

class Stateful {
 public:
  virtual ~Stateful();
  // Visits all state, in an order that depends on the object's structure only. Collective if the state is spread over ranks.
  virtual void visit(Visitor& visitor) = 0;
};

}  // namespace zt
