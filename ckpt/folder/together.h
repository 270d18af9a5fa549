// What all ranks of a checkpoint do alike, and what they tell each other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zt/comm/comm.h"

namespace zt::ckpt {

// The ranks of a checkpoint; without a communicator the only one. The same calls on every rank, in the same order.
class Ranks {
 public:
  Ranks() = default;
  explicit Ranks(std::shared_ptr<Communicator> all) : all_(std::move(all)) {}

  int rank() const { return all_ ? all_->rank() : 0; }
  int size() const { return all_ ? all_->size() : 1; }

  // Runs `action` on every rank. If it failed on any, every rank throws a Fault (a Misuse if all that failed did) with what the
  // first of them said and how many there were.
  void together(const std::function<void()>& action) const;
  // The same, on rank 0 alone.
  void on_rank_zero(const std::function<void()>& action) const;

  std::vector<std::string> gather(const std::string& bytes) const;  // every rank's, in rank order, on rank 0; nothing elsewhere
  // parts: one a rank, on rank 0; returns this rank's.
  std::string scatter(const std::vector<std::string>& parts) const;
  std::string broadcast(const std::string& bytes) const;  // rank 0's
  // Element by element the largest over the ranks, in place.
  void max(std::vector<uint8_t>& flags) const;

  // Logs a warning, on rank 0 alone.
  void warn(const std::string& text) const;

  // The same ranks with an order of calls of their own, for another thread. Collective.
  Ranks duplicate(const std::string& name) const;
  void set_timeout(std::chrono::milliseconds timeout) const;

 private:
  enum class To : uint8_t { all, rank_zero };
  std::vector<std::string> collect(const std::string& bytes, To to) const;

  std::shared_ptr<Communicator> all_;
};

}  // namespace zt::ckpt
