// Gives a trainer's memory back between two phases of a run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "zt/model/home.h"

namespace zt {

class AwayData;
class Pass;
class Store;
struct TrainerRuns;

// What may leave the memory.
enum class TrainerData : uint8_t {
  optimizer,   // optimizer state, master parameters that have memory of their own, and buffers of passes
  gradients,   // with the buffers in which they are sent
  parameters,  // what layers see
};
constexpr auto words_of(TrainerData) {
  return std::array{"optimizer", "gradients", "parameters"};
}

// Functions are collective over the mesh. Threads: the rank's thread only.
class TrainerPhases {
 public:
  // `running` is null for a dry trainer.
  TrainerPhases(Store& store, TrainerRuns* running);
  ~TrainerPhases();

  // Takes data to the tier `to` and gives their memory back until `fetch`, so that another model may use it. `places`: a pass
  // that has homes in the tier, such as offload.move. Without gradients or optimizer the trainer evaluates and infers; what needs
  // data that are away throws Misuse. Throws Misuse for data that are away already, and where `places` cannot hold them, and
  // Fault if they cannot be written: nothing has changed then.
  void evict(const std::set<TrainerData>& what, Tier to, const Pass& places);
  // Brings all that is away back, with the same values. Does nothing if nothing is. Throws Fault if they cannot be read: they are
  // away as before then.
  void fetch();

  // Changes the bytes that are held, by kind, to those in memory now, and adds those in the tiers.
  void correct(std::map<std::string, int64_t>& bytes) const;

 private:
  Store& store_;
  TrainerRuns* running_;
  std::unique_ptr<AwayData> away_;
};

}  // namespace zt
