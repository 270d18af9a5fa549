// Backend "two_level": ranks on several nodes. Its collectives first combine the data of a node's ranks in shared memory, so that
// each byte crosses the network once per node and not once per rank.
//
// W = Q * L ranks on Q nodes, L consecutive ones on each: group rank r = q * L + l has place l on node q. Cost for n bytes in the
// longer tensor:
//
//   operation       steps                                               network: each rank sends   rounds there
//   all_reduce      reduce_scatter inside, all_reduce across of this    2 n / L * (Q - 1) / Q        2, short: 1; and 1 for
//                   place's segment, all_gather inside; all_reduce                                   the last n mod L
//                   flat of the last n mod L elements
//   reduce_scatter  inside (a list: one pair per node), across          n / L * (Q - 1) / Q          1
//   all_gather      across, inside (a list: one pair per node)          n / L * (Q - 1) / Q          1
//   all_to_all      counts inside, to the receiver's place       n * (Q - 1) / Q                    1
//                   inside, across
//   all others, and the first three up to 2 KiB: as on `flat`
//
// `flat` alone sends L times as much over the network; in an all_to_all as much, but in L * L times as many messages. A step
// inside costs what it costs on that communicator: on "shm" each rank reads n, once if the tensors are from `allocate` (of a
// list: those of 256 KiB or more). Scratch, kept between calls: none for all_reduce, n / L for reduce_scatter and all_gather, 2 n
// for all_to_all, where n is what the rank gives or, if that is more, what it passes on for others. With SumOrder::fixed, sums
// and products of 16-bit floats travel in fp32 and are rounded once: twice the bytes in a reduce_scatter and across, and an fp32
// copy of the input (2 n, and 2 n / L, of scratch).
//
// Bits: with SumOrder::fixed and L a power of two, those of every other backend. In-place rules: zt/comm/comm.h. Checked
// collectives (CheckMode) are compared over `flat` first, in addition to the comparisons of the levels.
#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"
#include "zt/comm/comm.h"

namespace zt::comm {

// The communicators of one rank. Only the two-level backend uses them: it makes all calls on them one at a time, in one order.
struct Levels {
  std::shared_ptr<Communicator> inside;  // the L ranks of this node, in group order
  std::shared_ptr<Communicator> across;  // the Q ranks with this rank's place, in group order
  std::shared_ptr<Communicator> flat;    // all W, in group order
};

// The timeout applies to each step, which is an operation of one of `levels`. The message names the axis of the level
// ("dp/inside"). check_abort throws Aborted if another rank of the run failed.
std::unique_ptr<Backend> make_two_level_backend(Levels levels, Group group, SumOrder order, std::function<void()> check_abort);

}  // namespace zt::comm
