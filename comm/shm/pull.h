// The collectives in which each rank reads its data from the other ranks' buffers: all but all_reduce, send, recv and barrier.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>

#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

constexpr unsigned kFew = 8;  // lists of up to this many ranks allocate no heap memory

struct ByteRange {
  size_t begin = 0, bytes = 0;
};

// The parts that one rank gives and reads in a collective. Ranges count bytes from the start of the giving rank's source buffer.
struct ReadList {
  const char* source = nullptr;             // this rank's buffer; null means that it gives nothing
  c10::SmallVector<ByteRange, kFew> gives;  // by reader: the part of `source` that the reader takes
  bool is_same_part = false;                // all readers take the same part, so it is staged once
  c10::SmallVector<ByteRange, kFew> takes;  // by source rank: the part of its buffer that this rank reads
  size_t longest = 0;                       // bytes of the longest part between any two ranks
  // The parts are copied to `targets`. If `targets` is empty, all parts have one length and are reduced into `sum`.
  c10::SmallVector<char*, kFew> targets;  // by source rank
  char* sum = nullptr;                    // null means that this rank gets no result
  at::ScalarType dtype = at::kByte;
  ReduceOp reduce = ReduceOp::sum;
};

// Call these after team.enter(). They read from the notices, from the ranks' windows, or through the stages.
void pull_inline(const Team& team, const ReadList& list);
void pull_direct(Team& team, const Windows& windows, const ReadList& list);
void pull_staged(Team& team, const ReadList& list);

}  // namespace zt::comm
