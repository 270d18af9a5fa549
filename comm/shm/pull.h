// The collectives in which every rank reads what is meant for it from the others: all but all_reduce, send and recv.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>

#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

constexpr unsigned kFew = 8;  // ranks for which no memory is taken

struct Range {
  size_t begin = 0, bytes = 0;
};

// What one rank contributes and takes. Bytes, counted from the begin of the ranks' source buffers.
struct Pull {
  const char* source = nullptr;         // this rank's buffer; nullptr: it gives nothing
  c10::SmallVector<Range, kFew> gives;  // by reader: the part of `source` that it reads
  bool is_alike = false;                // all readers read the same part: it is staged once
  c10::SmallVector<Range, kFew> takes;  // by source: the part of that rank's buffer that this rank reads
  size_t longest = 0;                   // over all pairs of ranks
  // Either copies: where what comes from each rank goes. Or a sum of equally long parts.
  c10::SmallVector<char*, kFew> targets;  // by source; empty: add up
  char* sum = nullptr;                    // nullptr: this rank gets none
  at::ScalarType dtype = at::kByte;
  ReduceOp reduce = ReduceOp::sum;
};

// After team.enter(). In the notices, in the ranks' own buffers, or through the stages.
void pull_inline(const Team& team, const Pull& pull);
void pull_direct(Team& team, const Windows& windows, const Pull& pull);
void pull_staged(Team& team, const Pull& pull);

}  // namespace zt::comm
