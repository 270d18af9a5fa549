// The check before an operation: every rank gathers the calls of all ranks (Bruck's all_gather, log2 W rounds).
#include "core/compare.h"

#include <algorithm>

#include "algorithms.h"

namespace zt::comm {

namespace {

void compare_all(Site site, const Call& call) {
  const int size = site.size(), rank = site.rank();
  // Entry i is the call of rank (rank + i) % size.
  auto* calls = reinterpret_cast<Call*>(site.staging.get(sizeof(Call) * static_cast<size_t>(size)));
  calls[0] = call;
  for (int known = 1; known < size; known *= 2) {
    const size_t bytes = sizeof(Call) * static_cast<size_t>(std::min(known, size - known));
    Messages messages(site.transport, site.policy);
    messages.recv((rank + known) % size, calls + known, bytes);
    messages.send((rank - known + size) % size, calls, bytes);
    messages.wait();
  }
  std::vector<Call> by_rank(calls, calls + size);
  std::rotate(by_rank.begin(), by_rank.end() - rank, by_rank.end());
  compare_calls(by_rank, site.transport.group());
}

// The sender sends its call, and the receiver compares it with its own.
void compare_pair(Site site, const Call& call) {
  auto* theirs = reinterpret_cast<Call*>(site.staging.get(sizeof(Call)));
  Messages messages(site.transport, site.policy);
  if (call.kind == CallKind::send) {
    *theirs = call;
    messages.send(call.peer, theirs, sizeof(Call));
    return messages.wait();
  }
  messages.recv(call.peer, theirs, sizeof(Call));
  messages.wait();
  compare_message(*theirs, call, site.transport.group());
}

}  // namespace

void compare(Site site, const Operation& operation) {
  if (is_collective(operation.kind)) compare_all(site, operation.call);
  else compare_pair(site, operation.call);
}

}  // namespace zt::comm
