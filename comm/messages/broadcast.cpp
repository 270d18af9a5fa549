// Broadcast, by a binomial tree or, for long data, by scatter + all_gather. Also the barrier.
#include <bit>

#include "algorithms.h"
#include "core/bytes.h"
#include "core/segments.h"

namespace zt::comm {

namespace {

// Bytes from which log2(W) full-length sends of the tree cost more than the two partial ones of scatter + all_gather.
constexpr size_t kLong = size_t{64} << 10;

// `place` counts ranks from the root. Place k receives from the place that is k without its highest bit.
void broadcast_tree(Site site, const at::Tensor& tensor, int root) {
  const int size = site.size();
  const auto place = static_cast<unsigned>((site.rank() - root + size) % size);
  const auto peer = [&](unsigned p) { return (static_cast<int>(p) + root) % size; };
  Messages messages(site.transport, site.policy);
  if (place != 0) {
    messages.recv(peer(place & ~std::bit_floor(place)), bytes_of(tensor), tensor.nbytes());
    messages.wait();
  }
  for (unsigned bit = place == 0 ? 1 : std::bit_floor(place) * 2; place + bit < static_cast<unsigned>(size); bit *= 2) {
    messages.send(peer(place + bit), bytes_of(tensor), tensor.nbytes());
  }
  messages.wait();
}

void broadcast_segments(Site site, const at::Tensor& tensor, int root) {
  const int size = site.size(), rank = site.rank();
  const Segments segments{static_cast<int64_t>(tensor.nbytes()), size};
  const auto part = [&](int peer, int segment) {
    return PeerPart{peer, bytes_of(tensor) + segments.begin(segment), static_cast<size_t>(segments.size(segment))};
  };
  // First the root sends each rank its segment. Then each rank sends its segment to all others; the root receives nothing.
  std::vector<PeerPart> sends, receives;
  if (rank == root) {
    for (int r = 0; r < size; ++r) sends.push_back(part(r, r));
    exchange(site, sends, {});
    sends.clear();
    for (int r = 0; r < size; ++r) {
      if (r != root) sends.push_back(part(r, root));
    }
    return exchange(site, sends, {});
  }
  exchange(site, {}, {part(root, rank)});
  for (int r = 0; r < size; ++r) {
    if (r != rank) receives.push_back(part(r, r));
    if (r != rank && r != root) sends.push_back(part(r, rank));
  }
  exchange(site, sends, receives);
}

}  // namespace

void broadcast(Site site, const Operation& operation) {
  const at::Tensor& tensor = operation.out[0];
  if (site.size() == 2 || tensor.nbytes() < kLong) broadcast_tree(site, tensor, operation.peer);
  else broadcast_segments(site, tensor, operation.peer);
}

// Dissemination barrier: after k rounds a rank knows that the 2^k - 1 ranks before it have arrived.
void barrier(Site site, const Operation&) {
  const int size = site.size(), rank = site.rank();
  char* token = site.staging.get(2);
  token[0] = 0;
  for (int step = 1; step < size; step *= 2) {
    exchange(site, {{(rank + step) % size, token, 1}}, {{(rank - step + size) % size, token + 1, 1}});
  }
}

}  // namespace zt::comm
