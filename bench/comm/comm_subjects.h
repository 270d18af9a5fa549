// The calls that comm_bench times: collectives of zt.comm, the equal raw MPI calls, and the memory traffic as a lower bound.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "zt/comm/comm.h"

namespace zt::comm::bench {

const std::vector<std::string>& op_names();

// One collective over `comm` on buffers of one size and type. Every input element is rank + 1 (in all_to_all plus the receiver's
// rank).
struct Subject {
  std::string op;
  at::Tensor out, in;
  double bus_factor = 1;  // busbw / algbw, as in nccl-tests
  int64_t count = 0;      // elements of the longer buffer
  int messages = 1;       // of channel and ping_pong: messages per call; times are per message
  std::function<Work(Async)> ours;
  std::function<void()> raw;       // the raw MPI call; empty means that MPI does not have the type
  std::function<void()> limit;     // this rank's sums and copies alone, in private memory, without waiting for another rank
  std::function<int64_t()> wrong;  // returns the number of wrong elements in `out`
};

enum class Memory : uint8_t { window, ordinary };
enum class Place : uint8_t { apart, in_place };  // of `out` and `in`, as zt/comm/comm.h says

// Returns whether the collective has an in-place form.
bool has_in_place(const std::string& op);

// channel: rank 0 streams 32 messages of `bytes` to rank 1 over a channel of depth 4; MPI's sends, four under way at a time. The
// limit is the same copies, into or out of four buffers in turn. ping_pong: a message from rank 0 to rank 1 and back. Other ranks
// only look on. Collective.
Subject make_channel_subject(Communicator& comm, const std::string& op, int64_t bytes, at::ScalarType dtype);

// Makes the buffers and the calls. `bytes` is the size of the longer buffer; it is rounded down to a whole number of elements per
// rank, at least one. Collective.
Subject make_subject(Communicator& comm, const std::string& op, int64_t bytes, at::ScalarType dtype, Memory memory, Place place);

}  // namespace zt::comm::bench
