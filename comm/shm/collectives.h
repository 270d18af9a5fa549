// The operations in shared memory, each on one tensor or pair of tensors. Call all_reduce_*, make_read_list and pull_* after
// team.enter().
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>

#include "core/operation.h"
#include "shm/team.h"
#include "shm/windows.h"

namespace zt::comm {

// --- all_reduce: each rank reduces its segment of all ranks' inputs and writes the result into every rank's output ---

// Inline: the inputs lie in the notices, and every rank reduces all of them. Direct: all ranks' tensors lie in windows. Staged:
// any memory.
void all_reduce_inline(const Team& team, const Operation& operation);
void all_reduce_direct(Team& team, const Windows& windows, const Operation& operation);
void all_reduce_staged(Team& team, const Operation& operation);

// --- send and recv ---

// A long tensor in a window is read in place, and the send returns when the receiver has read it. Any other tensor goes in chunks
// through the two stages of the pair, and the send returns when the last chunk is staged. Throws Fault on the receiver if the
// count or the type differ.
void send(Team& team, const Windows& windows, const Operation& operation);
void recv(Team& team, const Windows& windows, const Operation& operation);

// --- the others, but for barrier: each rank reads its data from the other ranks' buffers ---

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

// These read from the notices, from the ranks' windows, or through the stages.
void pull_inline(const Team& team, const ReadList& list);
void pull_direct(Team& team, const Windows& windows, const ReadList& list);
void pull_staged(Team& team, const ReadList& list);

// Returns whether the data that this rank gives fits into its notice. The result is equal on all ranks, except for all_to_all,
// where each rank may give a different amount.
bool is_inline(const Operation& operation, int size);

// Writes the splits of an all_to_all into the notice: the bytes that this rank gives to each rank and expects from each rank.
void write_splits(const Operation& operation, Notice& notice);

// Makes the read list of a collective. It depends on the operation alone; for all_to_all also on the splits in the notices.
// Throws Fault if ranks' splits do not match.
ReadList make_read_list(const Operation& operation, const Team& team);

}  // namespace zt::comm
