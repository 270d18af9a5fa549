#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "algorithms.h"
#include "core/bytes.h"

namespace zt::comm {

namespace {

// Sorts the parts by peer: rank + 1, rank + 2, ... (rank - 1, ... for direction -1). So the ranks do not all start with one peer.
std::vector<Part> staggered(std::vector<Part> parts, int rank, int size, int direction) {
  const auto distance = [&](const Part& part) { return ((part.peer - rank) * direction + size) % size; };
  std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return distance(a) < distance(b); });
  return parts;
}

}  // namespace

char* Staging::get(size_t bytes) {
  if (!memory_.defined() || static_cast<size_t>(memory_.numel()) < bytes) {
    memory_ = at::Tensor();
    memory_ = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  }
  return bytes_of(memory_);
}

void exchange(Site site, const std::vector<Part>& sends, const std::vector<Part>& receives) {
  const int rank = site.rank();
  Messages messages(site.transport, site.policy);
  const Part* own = nullptr;
  for (const Part& part : staggered(receives, rank, site.size(), -1)) {
    if (part.peer != rank) messages.recv(part.peer, part.data, part.bytes);
  }
  for (const Part& part : receives) {
    if (part.peer == rank) own = &part;
  }
  for (const Part& part : staggered(sends, rank, site.size(), +1)) {
    if (part.peer != rank) messages.send(part.peer, part.data, part.bytes);
    else if (own && own->data != part.data && part.bytes > 0) std::memcpy(own->data, part.data, part.bytes);
  }
  messages.wait();
}

}  // namespace zt::comm
