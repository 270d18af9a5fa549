// Ranks on several nodes: collectives that first join what a node's ranks have in shared memory, so that each byte crosses the
// network once a node and not once a rank.
//
// W = Q * L ranks on Q nodes, L on each, those of a node contiguous: group rank r = q * L + l has place l on node q. Cost, n
// bytes in the longer tensor:
//
//   operation       steps                                               network: each rank sends   rounds there
//   all_reduce      reduce_scatter inside, all_reduce across of this    2 n / L * (Q - 1) / Q        2, short: 1; and 1 for
//                   place's segment, all_gather inside; all_reduce                                   the last n mod L
//                   flat of the last n mod L elements
//   reduce_scatter  inside (a list: one pair a node), across            n / L * (Q - 1) / Q          1
//   all_gather      across, inside (a list: one pair a node)            n / L * (Q - 1) / Q          1
//   all others, and these three up to 2 KiB: as on `flat`
//
// `flat` alone sends L times as much over the network. Inside, a step costs what it costs on that communicator: on "shm" each
// rank reads n, once where tensors are from `allocate` (of a list: those of 256 KiB or more). Scratch, kept between calls: none
// for all_reduce, n / L for the other two. With SumOrder::fixed, sums and products of 16-bit floats travel in fp32 and are
// rounded once: twice the bytes in a reduce_scatter and across, and an fp32 copy of the input (2 n, and 2 n / L, of scratch).
//
// Bits: with SumOrder::fixed and L a power of two, those of every other backend. In place as zt/comm/comm.h says. Collectives
// that are to be checked (CheckMode) are compared over `flat` first, whatever the levels compare of their own.
#pragma once

#include <functional>
#include <memory>

#include "core/backend.h"
#include "zt/comm/comm.h"

namespace zt::comm {

// Communicators of one rank, used by nobody else: the two-level one keeps all of their calls in one order, one at a time.
struct Levels {
  std::shared_ptr<Communicator> inside;  // the L ranks of this node, in group order
  std::shared_ptr<Communicator> across;  // the Q ranks with this rank's place, in group order
  std::shared_ptr<Communicator> flat;    // all W, in group order
};

// A time-out holds for each step, which is an operation of `levels`: the message names the level's axis ("dp/inside").
// check_abort throws Aborted when another rank of the run failed.
std::unique_ptr<Backend> make_two_level_backend(Levels levels, Group group, SumOrder order, std::function<void()> check_abort);

}  // namespace zt::comm
