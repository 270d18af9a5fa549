// The bytes that one thread keeps from being overwritten by another until it has read them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "zt/execute/homes.h"

namespace zt::offload {

// Threads: any.
class KeptRanges {
 public:
  using Token = int64_t;
  // Keeps [begin, begin + bytes), besides what is kept already.
  Token add(int64_t begin, int64_t bytes);
  // Gives up a part of what was added, or all of it.
  void release(Token token, int64_t begin, int64_t bytes);
  void remove(Token token);
  // Waits until none of the bytes is kept.
  void await_release(int64_t begin, int64_t bytes);

 private:
  struct Range {
    Token token;
    int64_t end;
  };
  bool has(int64_t begin, int64_t end) const;

  std::mutex mutex_;
  std::condition_variable released_;
  std::multimap<int64_t, Range> ranges_;  // by begin
  Token next_ = 0;
};

// Keeps [place, place + bytes) of a memory whose ranges these are. `read` starts to copy bytes of the memory from a place on.
using ReadBytes = std::function<Work(int64_t place, at::Tensor to)>;
std::shared_ptr<KeptBytes> keep_bytes(std::shared_ptr<KeptRanges> ranges, int64_t place, int64_t bytes, ReadBytes read);

}  // namespace zt::offload
