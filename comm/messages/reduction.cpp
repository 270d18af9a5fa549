// The reducing collectives. Every rank sends its input of a segment to the owner of that segment. The owner reduces the inputs
// along the fixed tree (reduce_tree.h) and sends the result on. No partial sum leaves a rank, so the order is that of the tree.
#include <algorithm>

#include "algorithms.h"
#include "core/bytes.h"
#include "core/reduce_tree.h"
#include "core/segments.h"

namespace zt::comm {

namespace {

// Bytes, summed over the ranks, up to which every rank receives all inputs and reduces them itself: one round instead of two.
constexpr size_t kOneRound = size_t{64} << 10;
// Bytes per chunk. A chunk is received while the previous one is reduced. It is small enough to be reduced from the cache.
constexpr size_t kChunk = size_t{512} << 10;

// Bytes of scratch memory for the chunks that are on their way from all other ranks.
constexpr size_t kStagingBytes = size_t{8} << 20;

int64_t chunk_elements(size_t element, int size) {
  const size_t room = kStagingBytes / (2 * static_cast<size_t>(std::max(1, size - 1)));
  return static_cast<int64_t>(std::max<size_t>(1, std::min(kChunk, room) / element));
}

// The segments of `in`: rank r owns elements [begin[r], begin[r] + size[r]).
struct Owners {
  std::vector<int64_t> begin, size;
};

// Receives this rank's segment from all other ranks, chunk by chunk, and reduces it into `out`.
class OwnedSegment {
 public:
  OwnedSegment(Site site, const at::Tensor& in, char* out, int64_t begin, int64_t size, ReduceOp op)
      : site_(site),
        dtype_(in.scalar_type()),
        element_(in.element_size()),
        own_(bytes_of(in) + static_cast<size_t>(begin) * element_),
        out_(out),
        size_(size),
        chunk_(chunk_elements(element_, site.size())),
        op_(op) {}

  void run() {
    const int64_t chunks = (size_ + chunk_ - 1) / chunk_;
    const size_t buffer_bytes = static_cast<size_t>(std::min(chunk_, size_)) * element_ * static_cast<size_t>(site_.size() - 1);
    char* staging = site_.staging.get(buffer_bytes * static_cast<size_t>(std::min<int64_t>(2, chunks)));
    Messages in_flight[2] = {{site_.transport, site_.policy}, {site_.transport, site_.policy}};
    for (int64_t c = 0; c <= chunks; ++c) {
      if (c < chunks) receive(in_flight[c % 2], staging + static_cast<size_t>(c % 2) * buffer_bytes, c);
      if (c == 0) continue;
      in_flight[(c - 1) % 2].wait();
      add(staging + static_cast<size_t>((c - 1) % 2) * buffer_bytes, c - 1);
    }
  }

 private:
  int64_t length(int64_t chunk) const { return std::min(chunk_, size_ - chunk * chunk_); }

  void receive(Messages& messages, char* staging, int64_t chunk) {
    const size_t bytes = static_cast<size_t>(length(chunk)) * element_;
    for (int step = 1; step < site_.size(); ++step) {
      const int peer = (site_.rank() - step + site_.size()) % site_.size();
      messages.recv(peer, staging + static_cast<size_t>(step - 1) * bytes, bytes);
    }
  }

  void add(const char* staging, int64_t chunk) {
    const size_t bytes = static_cast<size_t>(length(chunk)) * element_;
    const size_t offset = static_cast<size_t>(chunk * chunk_) * element_;
    std::vector<const void*> sources(static_cast<size_t>(site_.size()));
    sources[site_.rank()] = own_ + offset;
    for (int step = 1; step < site_.size(); ++step) {
      const int peer = (site_.rank() - step + site_.size()) % site_.size();
      sources[peer] = staging + static_cast<size_t>(step - 1) * bytes;
    }
    reduce_tree(dtype_, op_, out_ + offset, sources, length(chunk));
  }

  Site site_;
  at::ScalarType dtype_;
  size_t element_;
  const char* own_;
  char* out_;
  int64_t size_, chunk_;
  ReduceOp op_;
};

// Reduces each segment on its owner. Writes this rank's reduced segment to `out`.
void reduce_owned(Site site, const at::Tensor& in, char* out, const Owners& owners, ReduceOp op) {
  const size_t element = in.element_size();
  const int64_t chunk = chunk_elements(element, site.size());
  // All sends are posted at the start, so that a receiver can take them at any time, also while this rank computes.
  Messages sends(site.transport, site.policy);
  for (int step = 1; step < site.size(); ++step) {
    const int peer = (site.rank() + step) % site.size();
    for (int64_t first = 0; first < owners.size[peer]; first += chunk) {
      const int64_t length = std::min(chunk, owners.size[peer] - first);
      sends.send(peer, bytes_of(in) + static_cast<size_t>(owners.begin[peer] + first) * element,
                 static_cast<size_t>(length) * element);
    }
  }
  OwnedSegment(site, in, out, owners.begin[site.rank()], owners.size[site.rank()], op).run();
  sends.wait();
}

Owners owners_of(const Segments& segments) {
  Owners owners;
  for (int r = 0; r < segments.ranks; ++r) {
    owners.begin.push_back(segments.begin(r));
    owners.size.push_back(segments.size(r));
  }
  return owners;
}

void all_reduce_in_one_round(Site site, const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  const int size = site.size();
  char* staging = site.staging.get(in.nbytes() * static_cast<size_t>(size));
  std::vector<PeerPart> sends, receives;
  std::vector<const void*> sources;
  for (int r = 0; r < size; ++r) {
    sends.push_back({r, bytes_of(in), in.nbytes()});
    receives.push_back({r, staging + static_cast<size_t>(r) * in.nbytes(), in.nbytes()});
    sources.push_back(receives.back().data);
  }
  exchange(site, sends, receives);
  reduce_tree(in.scalar_type(), op, bytes_of(out), sources, in.numel());
}

}  // namespace

void all_reduce(Site site, const Operation& operation) {
  const at::Tensor &out = operation.out[0], &in = operation.in[0];
  const int size = site.size(), rank = site.rank();
  if (in.nbytes() * static_cast<size_t>(size) <= kOneRound) return all_reduce_in_one_round(site, out, in, operation.reduce);
  const Segments segments{in.numel(), size};
  const size_t element = in.element_size();
  const auto segment = [&](int r) {
    return PeerPart{r, bytes_of(out) + static_cast<size_t>(segments.begin(r)) * element,
                    static_cast<size_t>(segments.size(r)) * element};
  };
  reduce_owned(site, in, segment(rank).data, owners_of(segments), operation.reduce);
  std::vector<PeerPart> sends, receives;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    receives.push_back(segment(r));
    sends.push_back({r, segment(rank).data, segment(rank).bytes});
  }
  exchange(site, sends, receives);
}

void reduce_scatter(Site site, const Operation& operation) {
  const at::Tensor& in = operation.in[0];
  reduce_owned(site, in, bytes_of(operation.out[0]), owners_of({in.numel(), site.size()}), operation.reduce);
}

void reduce(Site site, const Operation& operation) {
  const at::Tensor& in = operation.in[0];
  Owners owners{std::vector<int64_t>(static_cast<size_t>(site.size()), 0),
                std::vector<int64_t>(static_cast<size_t>(site.size()), 0)};
  owners.size[operation.peer] = in.numel();
  char* out = site.rank() == operation.peer ? bytes_of(operation.out[0]) : nullptr;
  reduce_owned(site, in, out, owners, operation.reduce);
}

}  // namespace zt::comm
