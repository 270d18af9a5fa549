#include <algorithm>
#include <cstring>

#include "algorithms.h"

namespace zt::comm {

namespace {

// Sorts the parts by peer: rank + 1, rank + 2, ... (rank - 1, ... for direction -1). So the ranks do not all start with one peer.
std::vector<PeerPart> staggered(std::vector<PeerPart> parts, int rank, int size, int direction) {
  const auto distance = [&](const PeerPart& part) { return ((part.peer - rank) * direction + size) % size; };
  std::sort(parts.begin(), parts.end(), [&](const PeerPart& a, const PeerPart& b) { return distance(a) < distance(b); });
  return parts;
}

}  // namespace

void exchange(Site site, const std::vector<PeerPart>& sends, const std::vector<PeerPart>& receives) {
  const int rank = site.rank();
  Messages messages(site.transport, site.policy);
  const PeerPart* own = nullptr;
  for (const PeerPart& part : staggered(receives, rank, site.size(), -1)) {
    if (part.peer != rank) messages.recv(part.peer, part.data, part.bytes);
  }
  for (const PeerPart& part : receives) {
    if (part.peer == rank) own = &part;
  }
  for (const PeerPart& part : staggered(sends, rank, site.size(), +1)) {
    if (part.peer != rank) messages.send(part.peer, part.data, part.bytes);
    else if (own && own->data != part.data && part.bytes > 0) std::memcpy(own->data, part.data, part.bytes);
  }
  messages.wait();
}

}  // namespace zt::comm
