// The collectives over a Transport, written once: every transport moves the same chunks and adds in the same order.
// Cost: README.md. Each function is one blocking operation on tensors that were checked; errors: Fault, Aborted, TimedOut.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/operation.h"
#include "transport.h"

namespace zt::comm {

// Scratch memory of one communicator, kept between operations; grows to kStagingBytes at most, or to what one small
// operation needs.
class Staging {
 public:
  // At least `bytes`; earlier contents are gone.
  char* get(size_t bytes);
  // The memory itself, to be kept alive longer than this object.
  at::Tensor release() { return std::move(memory_); }

 private:
  at::Tensor memory_;
};

constexpr size_t kStagingBytes = size_t{8} << 20;

struct Site {
  Transport& transport;
  WaitPolicy& policy;
  Staging& staging;
  int rank() const { return transport.group().rank; }
  int size() const { return transport.group().size(); }
};

// A contiguous chunk of memory at or for one rank.
struct Part {
  int peer = 0;
  char* data = nullptr;
  size_t bytes = 0;
};
// Moves all parts at once. A part for the rank itself is a copy: the one in `sends` goes to the one in `receives`.
void exchange(Site site, const std::vector<Part>& sends, const std::vector<Part>& receives);

// Fault if the ranks concerned called something else.
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

// Which elements of n belong to which of W ranks when an operation splits its work: nearly equal, ascending.
struct Segments {
  int64_t count = 0;
  int ranks = 1;
  int64_t begin(int rank) const { return count / ranks * rank + std::min<int64_t>(rank, count % ranks); }
  int64_t size(int rank) const { return begin(rank + 1) - begin(rank); }
};

inline char* bytes_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

}  // namespace zt::comm
