// The collectives over a Transport. All transports share this code, so they move the same chunks and add in the same order.
// Cost: README.md. Each function runs one blocking operation on checked tensors. Errors: Fault, Aborted, TimedOut, PeersEnded.
#pragma once

#include <cstddef>
#include <vector>

#include "core/operation.h"
#include "queue/staging.h"
#include "queue/wait_policy.h"
#include "transport.h"

namespace zt::comm {

// The transport, wait policy and scratch memory of an operation.
struct Site {
  Transport& transport;
  WaitPolicy& policy;
  Staging& staging;
  int rank() const { return transport.group().rank; }
  int size() const { return transport.group().size(); }
};

// Contiguous memory of this rank, to be sent to `peer` or received from it.
struct PeerPart {
  int peer = 0;
  char* data = nullptr;
  size_t bytes = 0;
};
// Sends and receives all parts concurrently. A part for this rank itself is copied from `sends` to `receives`.
void exchange(Site site, const std::vector<PeerPart>& sends, const std::vector<PeerPart>& receives);

// Throws Fault if another rank that takes part called something else.
void compare(Site site, const Operation& operation);

void all_reduce(Site site, const Operation& operation);
void reduce_scatter(Site site, const Operation& operation);
void reduce(Site site, const Operation& operation);
void all_gather(Site site, const Operation& operation);
void broadcast(Site site, const Operation& operation);
void gather(Site site, const Operation& operation);
void scatter(Site site, const Operation& operation);
void all_to_all(Site site, const Operation& operation);
void send(Site site, const Operation& operation);
void recv(Site site, const Operation& operation);
void barrier(Site site, const Operation& operation);

}  // namespace zt::comm
