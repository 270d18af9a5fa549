// Data that were taken out of memory between steps, and their way back.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "held_memories.h"
#include "store.h"
#include "zt/train/phases.h"

namespace zt {

// Memory of the CPU keeps its address: its pages go back to the system. Memory of a device goes back to its allocator, and
// tensors get other memory later. Places for slices under way stay, because files may be bound to them. Threads: the rank's
// thread only, with no action in flight.
class AwayData {
 public:
  using MakeHomes = std::function<std::shared_ptr<Homes>(const HomeNeeds&)>;

  explicit AwayData(Store& store) : store_(store) {}
  // Takes what is not away yet to the tier `to`. `gradients`: those that are not in the store. Collective. Throws what `make`
  // throws, and Fault if the data cannot be written; all is in memory then, as before.
  void evict(const std::set<TrainerData>& what, Tier to, const std::vector<at::Tensor>& gradients, const MakeHomes& make);
  // Brings all back. Collective. Throws Fault if the data cannot be read: they are away as before, then.
  void fetch();

  bool has(TrainerData data) const;
  bool is_empty() const { return trips_.empty(); }
  // Changes what Store::bytes returns to what is in memory now: by kind, and by tier.
  void correct(std::map<std::string, int64_t>& bytes) const;

 private:
  // A memory that is away, and the place of its bytes in the tier.
  struct Gone {
    HeldMemory memory;
    int64_t place = 0, bytes = 0;
    bool was_pinned = false;
  };
  struct Trip {
    std::set<TrainerData> what;
    Tier to = Tier::file;
    std::vector<Gone> gone = {};
    std::shared_ptr<Homes> homes = {};
  };

  std::vector<HeldMemory> find(const std::set<TrainerData>& what, Tier to, const std::vector<at::Tensor>& gradients) const;
  std::vector<HeldMemory> in_host_tier(const std::set<TrainerData>& what) const;
  void give_memory_back(Gone& gone) const;
  void take_memory(const Gone& gone) const;

  Store& store_;
  std::vector<Trip> trips_;
};

}  // namespace zt
