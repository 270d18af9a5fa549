// The flight recorder of one rank: memory in which the rank's communicators record their calls.
//
// Under mpirun it is a mapped file in the session's folder. The other ranks of the machine can read it even after this rank was
// killed, and mpirun removes it. Without mpirun it is memory of the process. Threads: any.
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

// The reason for the end of a rank whose script has returned or called os.exit(0).
constexpr const char* kScriptEnded = "its script has ended";
// The start of the reason for a rank that called os.exit with another status. Such a rank prints no error.
constexpr const char* kExited = "it ended by itself";

class BlackBox : public std::enable_shared_from_this<BlackBox> {
 public:
  // Logs a warning and uses memory of the process if the file cannot be made.
  static std::shared_ptr<BlackBox> create(const World& world);
  ~BlackBox();
  BlackBox(const BlackBox&) = delete;

  std::shared_ptr<Ring> open_ring(const Group& group, const std::string& backend);
  // Records why this rank ends. Only the first reason is kept.
  void set_end(const std::string& why);
  std::string end() const;
  int rank() const { return rank_; }
  Flight read() const;

  // Returns the contents of the boxes of this machine's ranks, in rank order, also of ranks whose processes are gone. Empty
  // without mpirun.
  static std::vector<Flight> read_all();
  // Returns the contents of the boxes of those of the `world_ranks` that ended for the reason `why`.
  static std::vector<Flight> read_ended(std::span<const int> world_ranks, std::string_view why);
  // Returns why `world_rank`, a process of this machine, ended; empty if it recorded no reason.
  static std::string end_of(int world_rank);

 private:
  BlackBox(BoxMemory* memory, int descriptor, const World& world);
  RingMemory& free_ring();

  BoxMemory* const memory_;
  const int rank_;
  const int descriptor_;               // -1 means memory of the process
  std::mutex mutex_;                   // held to open a ring and to set the end
  std::map<std::string, int> copies_;  // number of communicators so far, by name and ranks
};

// Returns a new ring in `box`; null means in private memory that no other rank reads.
std::shared_ptr<Ring> open_ring(const std::shared_ptr<BlackBox>& box, const Group& group, const std::string& backend);

}  // namespace zt::comm
