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
  // Brings these data back. Collective. Throws Fault if they cannot be read: they are away as before, then.
  void fetch(const std::set<TrainerData>& what);

  // Return what is away, and its bytes.
  std::set<TrainerData> data() const;
  TierBytes bytes() const;
  // Changes what Store::bytes returns to what is in memory now: by kind, and by tier.
  void correct(std::map<std::string, int64_t>& bytes) const;

 private:
  // A memory that is away, and the place of its bytes in the tier.
  struct Gone {
    TrainerData data;
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

  using Found = std::vector<std::pair<TrainerData, HeldMemory>>;
  Found find(const std::set<TrainerData>& what, Tier to, const std::vector<at::Tensor>& gradients) const;
  Found in_host_tier(const std::set<TrainerData>& what) const;
  void move(const Trip& trip, const std::set<TrainerData>& what, bool is_back) const;
  void give_memory_back(Gone& gone) const;
  void take_memory(const Gone& gone) const;

  Store& store_;
  std::vector<Trip> trips_;
};

}  // namespace zt
