// Where one rank's communicators write down what they call: memory that outlives the rank.
//
// Under mpirun it is a file in the session's folder, mapped: the other ranks of the machine read it also after this one was
// killed, and mpirun removes it. Elsewhere it is memory of the process. Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flight.h"
#include "ring.h"
#include "zt/process/world.h"

namespace zt::comm {

struct BoxMemory;

// The end of a rank whose script has returned or called os.exit(0).
constexpr const char* kScriptEnded = "its script has ended";

class BlackBox : public std::enable_shared_from_this<BlackBox> {
 public:
  // Warns, and uses memory of the process, when the file cannot be made.
  static std::shared_ptr<BlackBox> create(const World& world);
  ~BlackBox();
  BlackBox(const BlackBox&) = delete;

  std::shared_ptr<Ring> open_ring(const Group& group, const std::string& backend);
  // Why this rank ends. The first reason stays.
  void set_end(const std::string& why);
  std::string end() const;
  int rank() const { return rank_; }
  Flight read() const;

  // The boxes of this machine's ranks, by rank, also of those that are gone; empty without mpirun.
  static std::vector<Flight> read_all();
  // The records of those of these world ranks that ended for the reason `why`.
  static std::vector<Flight> read_ended(std::span<const int> world_ranks, std::string_view why);
  // Why `world_rank`, a process of this machine, ended; empty if it did not say.
  static std::string end_of(int world_rank);

 private:
  BlackBox(BoxMemory* memory, int descriptor, const World& world);
  RingMemory& free_ring();

  BoxMemory* const memory_;
  const int rank_;
  const int descriptor_;               // -1: memory of the process
  std::mutex mutex_;                   // of what follows
  std::map<std::string, int> copies_;  // communicators so far, by name and ranks
};

}  // namespace zt::comm
