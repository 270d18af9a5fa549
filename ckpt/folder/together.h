// The communication of a checkpoint's ranks: actions whose errors are equal on all ranks, and collectives on text.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zt/comm/comm.h"

namespace zt::ckpt {

// The ranks of a checkpoint; without a communicator, this rank alone. All ranks must make the same calls in the same order.
class Ranks {
 public:
  Ranks() = default;
  // all: a communicator in host memory.
  explicit Ranks(std::shared_ptr<Communicator> all) : all_(std::move(all)) {}

  int rank() const { return all_ ? all_->rank() : 0; }
  int size() const { return all_ ? all_->size() : 1; }

  // Runs `action` on every rank. If it fails on any rank, every rank throws a Fault with the message of the first such rank and
  // the number of such ranks; a Misuse if all of them threw Misuse.
  void together(const std::function<void()>& action) const;
  // Runs `action` on rank 0 alone. Errors as for together().
  void on_rank_zero(const std::function<void()>& action) const;

  // Returns the `bytes` of every rank, in rank order, on rank 0; an empty list on other ranks.
  std::vector<std::string> gather(const std::string& bytes) const { return collect(bytes, To::rank_zero); }
  // Returns this rank's part. Only rank 0 gives `parts`, one per rank.
  std::string scatter(const std::vector<std::string>& parts) const;
  // Returns the `bytes` of rank 0.
  std::string broadcast(const std::string& bytes) const;
  // Replaces each element by its maximum over the ranks.
  void max(std::vector<uint8_t>& flags) const;
  // Returns whether `flag` is true on any rank.
  bool any(bool flag) const;

  // Logs a warning on rank 0 alone.
  void warn(const std::string& text) const;

  // Returns the same ranks with a communicator of their own, for calls from another thread. Collective.
  Ranks duplicate(const std::string& name) const;
  void set_timeout(std::chrono::milliseconds timeout) const;

 private:
  enum class To : uint8_t { all, rank_zero };
  std::vector<std::string> collect(const std::string& bytes, To to) const;

  std::shared_ptr<Communicator> all_;
};

}  // namespace zt::ckpt
