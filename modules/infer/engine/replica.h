// The ranks that compute the same requests together, and the others that each of their steps waits for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "zt/comm/mesh.h"
#include "zt/train/trainer.h"

namespace zt::infer {

// The reason why ranks cannot make a call together. If a rank has a complaint, it is that of the first such rank. Else, a rank
// gave another text `alike` than rank 0.
struct RankMistake {
  size_t rank = 0;
  std::string complaint = {};
  std::string first = {}, other = {};  // without a complaint: `alike` of rank 0 and of the rank
};
// Gathers complaints, which are empty for none, and texts that must be equal. Collective. `activity` names the call in reports.
std::optional<RankMistake> find_mistake(Communicator& over, const std::string& complaint, const std::string& alike,
                                        const std::string& activity);

// A replica is the ranks of the mesh that have the same samples. Replicas are coupled if the generate program communicates,
// within a replica or between them: then the trainer lets all ranks agree whether a step has failed, so replicas run each step
// together, some of them with nothing to compute. Threads: the rank's thread only.
class Replica {
 public:
  Replica() = default;  // of one rank
  // Collective over the mesh.
  explicit Replica(const Trainer& trainer);

  int ranks() const { return own_ ? own_->size() : 1; }
  bool is_coupled() const { return coupled_ != nullptr; }
  bool is_first() const { return !own_ || own_->rank() == 0; }
  // Returns the value of the replica's first rank, on all of its ranks. Collective over the replica.
  Value from_first(const Value& value) const;
  // Returns what is wrong on a rank of the replica: `mine`, or what another rank passed; empty: nothing. Also wrong is a number
  // of requests that differs from that of another rank. Collective over the replica.
  std::string agreed(const std::string& mine, int64_t requests) const;
  // Returns the least of the numbers of the replica's ranks. Collective over the replica.
  int64_t least(int64_t number) const;
  // Returns whether any of the coupled replicas has something to do; `mine`: whether this one has. Collective over them.
  bool any(bool mine) const;

 private:
  std::shared_ptr<Communicator> own_, coupled_;  // null: one rank
};

}  // namespace zt::infer
