// The write layout of a checkpoint: which rank writes which pieces. Computed once for all saves of the same structure.
#pragma once

#include <string>
#include <vector>

#include "folder/together.h"
#include "format/index.h"
#include "reshard/contents.h"

namespace zt::ckpt {

// A piece that one rank writes.
struct Write {
  int tensor;     // index into WriteLayout::tensors of rank 0, or into MasterIndex::tensors
  int part;       // index into Contents::parts of the writing rank, or into the tensors that a FolderWriter writes together
  int64_t first;  // the piece's first element in that part's data
  Region region;
};

struct WriteLayout {
  std::vector<Write> writes;                // of this rank, in the order of its shard's datasets
  std::vector<SavedTensor> tensors;         // on rank 0 only; without pieces
  std::vector<std::vector<Write>> by_rank;  // on rank 0 only: `writes` of every rank
};

// Returns names, dtypes, shapes, regions and attributes as bytes. Contents of equal structure have the same write layout.
std::string structure_of(const Contents& contents);

// Computes the layout on rank 0, from the structure of every rank's contents. Collective. Throws Misuse, naming the tensor, if
// ranks give one tensor different dtypes or shapes.
WriteLayout make_write_layout(const Ranks& ranks, const std::string& structure);

}  // namespace zt::ckpt
