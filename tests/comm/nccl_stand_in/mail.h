// Messages between the ranks of one machine, through mailboxes in memory that their processes share. Streams carry them: a call
// here only adds work to a stream, and the host does not wait.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace zt::test::stand_in {

constexpr int kMostRanks = 8;

// One message of this rank. Messages between two ranks arrive in the order in which both name them.
struct Message {
  bool sends;
  void* data;
  size_t bytes;
  int peer;
};

class Post {
 public:
  // Opens the mailboxes `name` of `size` ranks. Waits for the other ranks. Throws std::runtime_error if one does not come.
  Post(std::string name, int rank, int size);
  ~Post();
  Post(const Post&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Starts messages as one group, so their order among different peers does not matter.
  void exchange(const std::vector<Message>& messages, cudaStream_t stream);
  // Returns at least `bytes` of device memory, which the next call may give again.
  void* scratch(size_t bytes);
  // Lets all streams that wait for a flag go on.
  void abandon();

 private:
  struct Shared;
  struct Box;
  class Flow;
  Box& box(int from, int to) const;
  void meet(const char* what) const;

  const std::string name_;
  const int rank_, size_;
  Shared* shared_ = nullptr;
  std::vector<void*> scratch_;  // the last one is in use; work on a stream may still use the others
  size_t scratch_bytes_ = 0;
};

}  // namespace zt::test::stand_in
