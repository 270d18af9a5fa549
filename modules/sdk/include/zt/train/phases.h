// What a trainer has in memory, and with which parameters it computes, in a phase of a run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

// The kinds of data that may leave the memory.
enum class TrainerData : uint8_t {
  optimizer,   // optimizer state, master parameters that have memory of their own, and buffers of passes
  gradients,   // with the buffers in which they are sent
  parameters,  // what layers see
};
constexpr auto words_of(TrainerData) {
  return std::array{"optimizer", "gradients", "parameters"};
}

// Functions are collective over the mesh, and throw what one rank throws on all of them. On a dry trainer they do nothing.
// Threads: the rank's thread only.
class TrainerPhases {
 public:
  // `running` is null for a dry trainer.
  TrainerPhases(Store& store, TrainerRuns* running);
  ~TrainerPhases();

  // The data to take, and where they go. `places`: a pass that has homes in the tier, such as offload.places.
  struct Request {
    std::set<TrainerData> what;
    Tier to = Tier::file;
    std::shared_ptr<const Pass> places;
  };
  // Takes what `ask` returns out of memory and gives this back until `fetch`, so that another model may use it. Without gradients
  // or optimizer the trainer evaluates and infers; what needs data that are away throws Misuse. Throws what `ask` throws, and
  // Misuse for data that are away already or that the trainer does not have, and where `places` cannot hold them or they cannot
  // be written (with one rank, Fault): nothing has changed then.
  void evict(const std::function<Request()>& ask);
  // Brings what `ask` returns back, with the same values; all that is away if that is empty. Throws Misuse for data that are not
  // away, and as `evict` if they cannot be read: they are away as before then.
  void fetch(const std::function<std::set<TrainerData>()>& ask = [] { return std::set<TrainerData>(); });

  // Says whether layers use their adapters in what follows (Context::adapters). Without them the trainer evaluates and infers
  // only. Returns what was said before. Throws Misuse if the model has no adapters, and within a step by hand.
  bool use_adapters(bool wanted);
  // Goes back to what use_adapters has returned. Not collective.
  void restore_adapters(bool before);

  // Changes the bytes that are held, by kind, to those in memory now, and adds those in the tiers.
  void correct(std::map<std::string, int64_t>& bytes) const;
  // Returns a line of the trainer's report about what is away; empty if nothing is.
  std::string text() const;

 private:
  Store& store_;
  TrainerRuns* running_;
  std::unique_ptr<AwayData> away_;
};

}  // namespace zt
