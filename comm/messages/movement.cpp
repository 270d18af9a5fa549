// The collectives that only move data: each is one exchange.
#include "algorithms.h"
#include "core/bytes.h"

namespace zt::comm {

namespace {

// Returns the tensor as equally long parts, one per rank.
std::vector<PeerPart> equal_parts(const at::Tensor& tensor, int size) {
  std::vector<PeerPart> parts;
  const size_t bytes = tensor.nbytes() / static_cast<size_t>(size);
  for (int r = 0; r < size; ++r) parts.push_back({r, bytes_of(tensor) + static_cast<size_t>(r) * bytes, bytes});
  return parts;
}

std::vector<PeerPart> whole_for_each(const at::Tensor& tensor, int size) {
  std::vector<PeerPart> parts;
  for (int r = 0; r < size; ++r) parts.push_back({r, bytes_of(tensor), tensor.nbytes()});
  return parts;
}

std::vector<PeerPart> split_parts(const at::Tensor& tensor, const std::vector<int64_t>& splits) {
  std::vector<PeerPart> parts;
  char* data = bytes_of(tensor);
  for (size_t r = 0; r < splits.size(); ++r) {
    const size_t bytes = static_cast<size_t>(splits[r]) * tensor.element_size();
    parts.push_back({static_cast<int>(r), data, bytes});
    data += bytes;
  }
  return parts;
}

PeerPart whole(const at::Tensor& tensor, int peer) {
  return {peer, bytes_of(tensor), tensor.nbytes()};
}

}  // namespace

void all_gather(Site site, const Operation& operation) {
  exchange(site, whole_for_each(operation.in[0], site.size()), equal_parts(operation.out[0], site.size()));
}

void gather(Site site, const Operation& operation) {
  const bool is_root = site.rank() == operation.peer;
  exchange(site, {whole(operation.in[0], operation.peer)},
           is_root ? equal_parts(operation.out[0], site.size()) : std::vector<PeerPart>());
}

void scatter(Site site, const Operation& operation) {
  const bool is_root = site.rank() == operation.peer;
  exchange(site, is_root ? equal_parts(operation.in[0], site.size()) : std::vector<PeerPart>(),
           {whole(operation.out[0], operation.peer)});
}

void all_to_all(Site site, const Operation& operation) {
  exchange(site, split_parts(operation.in[0], operation.in_splits), split_parts(operation.out[0], operation.out_splits));
}

void send(Site site, const Operation& operation) {
  exchange(site, {whole(operation.in[0], operation.peer)}, {});
}

void recv(Site site, const Operation& operation) {
  exchange(site, {}, {whole(operation.out[0], operation.peer)});
}

}  // namespace zt::comm
