// Packed matrices beside checkpoints, which hold plain numbers only.
#pragma once

#include <cstdint>

#include "zt/base/stateful.h"
#include "zt/base/value.h"

namespace zt {

class Store;

// The matrices are frozen, so a script that makes such a trainer gives it the same ones before each load, and a checkpoint holds
// hashes of them. Threads: the rank's thread only.
class PackedValues {
 public:
  // Visits the hashes of the packed parameters by name, if there are any. Collective over the mesh. A load throws Misuse, which
  // names the first that differs, unless the trainer has the matrices of the trainer that was saved; a save, if nothing is
  // trained.
  void visit(const Store& store, Visitor& visitor);

 private:
  void hash(const Store& store);

  int64_t replacements_ = -1;  // StepState::replacements when they were hashed
  Value::Table hashes_;
};

}  // namespace zt
