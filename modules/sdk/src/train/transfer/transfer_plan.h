// Which elements go from which rank to which, and when. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/reshard/region.h"

namespace zt {

// Elements that this rank wants at once: those of `region` become elements [at, at + region.count) of the lane's target.
struct WantedPart {
  Region region;
  int64_t at = 0;
  int64_t held_bytes = 0;  // memory besides the bucket that the target needs until it has the whole part
};

// One kind of a tensor's values on its way: what some ranks have of it, and what this rank wants.
struct TransferLane {
  std::vector<int64_t> shape;
  int64_t element_bytes = 0;       // as it travels
  std::vector<Region> held;        // by rank: what it can give; without elements if nothing
  std::vector<WantedPart> wanted;  // they come in any order
};

// Evenly spaced stretches of elements: for t in [0, times), `count` elements from number from + t * from_stride of what the giver
// holds go to number to + t * to_stride of the target.
struct TransferRun {
  int32_t lane = 0, part = 0;  // of the receiver
  int64_t from = 0, to = 0, count = 0, times = 1, from_stride = 0, to_stride = 0;

  int64_t numel() const { return count * times; }
};

// What is moved at once. In a bucket, each run begins at a multiple of kRunAlign bytes of its peer's part.
struct TransferRound {
  std::vector<TransferRun> local;                                  // from this rank to itself
  std::vector<std::vector<TransferRun>> sent = {}, received = {};  // by peer; `to` of what is sent has no meaning
  std::vector<int64_t> sent_bytes = {}, received_bytes = {};       // by peer, with padding
  std::vector<int64_t> received_at = {};  // by peer: the byte of what it sends in this round at which this rank's part begins
  std::vector<std::pair<int32_t, int32_t>> completed = {};  // lanes and their parts that are complete after it
  bool communicates = false;                                // any rank sends; equal on all
};
inline constexpr int64_t kRunAlign = 64;

struct TransferPlan {
  std::vector<TransferRound> rounds;  // equally many on all ranks
  int64_t bucket_bytes = 0;           // most that a rank sends and receives in a round; equal on all ranks
  int64_t sent_bytes = 0;             // most that a rank sends in a round; equal on all ranks
};

// Returns the bytes of a run in a bucket.
int64_t bytes_in_bucket(const TransferRun& run, int64_t element_bytes);

// Returns the plan of the rank that is `rank` among those of the lanes. `control`: over these ranks, in host memory; null for a
// rank that only takes from itself. A part that needs more than `bucket_bytes` by itself gets a round of its own. Equal lanes on
// all ranks, but for what they want. Throws Fault if no rank has an element that this rank wants. Collective over `control`.
TransferPlan make_transfer_plan(const std::vector<TransferLane>& lanes, int rank, Communicator* control, int64_t bucket_bytes);

}  // namespace zt
