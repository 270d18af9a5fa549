// What comm_bench times: collectives of zt.comm, the raw MPI call that does the same, and the least that memory allows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "zt/comm/comm.h"

namespace zt::comm::bench {

const std::vector<std::string>& op_names();

// One collective over `comm` on buffers of one size and type. Input elements are rank + 1 (all_to_all: plus the receiver's rank).
struct Subject {
  std::string op;
  at::Tensor out, in;
  double bus_factor = 1;  // busbw / algbw, as in nccl-tests
  int64_t count = 0;      // elements of the longer buffer
  std::function<Work(Async)> ours;
  std::function<void()> raw;       // empty: MPI has no such type
  std::function<void()> limit;     // touches the bytes that this rank's part needs, in memory of its own, and waits for nobody
  std::function<int64_t()> wrong;  // elements of `out` that are not what they have to be
};

enum class Memory : uint8_t { window, ordinary };
enum class Place : uint8_t { apart, in_place };  // of `out` and `in`, as zt/comm/comm.h says

// Whether the collective can be in place.
bool has_in_place(const std::string& op);

// bytes: of the longer buffer, rounded down to whole elements for each rank, at least one. Collective.
Subject make_subject(Communicator& comm, const std::string& op, int64_t bytes, at::ScalarType dtype, Memory memory, Place place);

}  // namespace zt::comm::bench
