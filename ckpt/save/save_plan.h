// Who writes what of what the ranks hold; made once and used by every save of the same structure.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "folder/together.h"
#include "reshard/contents.h"

namespace zt::ckpt {

// A piece that one rank writes.
struct Write {
  int tensor;     // index into SavePlan::tensors on rank 0
  int part;       // of the writing rank's Contents::parts
  int64_t first;  // its first element there
  Region region;
};

struct PlannedTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  Value attributes;
};

struct SavePlan {
  std::vector<Write> writes;                // this rank's, in the order of its shard
  std::vector<PlannedTensor> tensors;       // on rank 0
  std::vector<std::vector<Write>> by_rank;  // on rank 0
};

// What a plan depends on, as bytes: equal for contents that one plan fits.
std::string structure_of(const Contents& contents);

// structure: of this rank's contents. Collective. Misuse, naming the tensor, when ranks say different things of one.
SavePlan plan_save(const Ranks& ranks, const std::string& structure);

}  // namespace zt::ckpt
