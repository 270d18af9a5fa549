// FETCH_VALUE and EVICT_VALUE: the data of a step on their way between the device's memory and other memories.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "execute/movement/saved_tensors.h"
#include "zt/execute/executor.h"

namespace zt {

struct StepParts;
class OwnedStorages;

// Returns the bytes of a storage, uint8.
at::Tensor bytes_of(const c10::Storage& storage);

// The data that EVICT_VALUE has taken out of memory. Tensors stay, with empty storages, which FETCH_VALUE fills again: no tensor
// has to be made anew, wherever autograd refers to it. A storage leaves only if nothing but the data of the step refers to it.
//
// On device meta nothing is copied, but the same memory is counted.
// Threads: the rank's thread only.
class MovedValues {
 public:
  // Begins a run of `program`: forgets what has not come back. No transfer may be under way.
  void begin(const RankProgram& program, StepParts& parts);
  // Forgets it of one micro-batch.
  void discard(int micro_batch, const StepState& state);

  // Returns the list for what the forward of a position saves; null if the program takes no data out of memory.
  SavedTensors* saved_by(int position, int micro_batch) { return moves_ ? &saved_[{position, micro_batch}] : nullptr; }

  // Start the actions of these kinds.
  Work evict(const Action& action, StepParts& parts);
  Work fetch(const Action& action, const StepState& state);
  // Returns the bytes that were moved since the last call.
  int64_t take_moved_bytes() { return std::exchange(moved_, 0); }
  // Return the bytes that are out of memory now, and the most that were in this run.
  const TierBytes& bytes_away() const { return bytes_away_; }
  const TierBytes& most_bytes_away() const { return most_away_; }

 private:
  // A storage, and the first of its bytes in the record.
  struct Part {
    c10::intrusive_ptr<c10::StorageImpl> storage;
    int64_t begin, bytes;
  };
  // The bytes that one EVICT_VALUE has taken: those of its storages, one after the other.
  struct Record {
    Tier tier;
    int64_t place = 0, bytes = 0;
    std::vector<Part> parts = {};
  };
  using Key = std::tuple<int, int, StepData>;  // position, micro-batch

  static Key key_of(const Action& action) { return {action.target, action.micro_batch, action.step_data()}; }
  void add_saved(int position, int micro_batch, bool may_leave, OwnedStorages& owned) const;
  void drop_garbage(const Action& action, const StepParts& parts) const;
  OwnedStorages held_by_step(const Action& action, StepParts& parts) const;
  static void give_back(const Record& record, const StepState& state);

  bool moves_ = false;
  std::vector<std::vector<int>> readers_;              // by position: the positions that read its outputs; found once
  std::map<std::pair<int, int>, SavedTensors> saved_;  // by position and micro-batch
  std::map<Key, Record> away_;
  std::map<int64_t, at::Tensor> buffers_;  // by slot: through which data leave
  int64_t moved_ = 0;
  TierBytes bytes_away_, most_away_;
};

}  // namespace zt
