// This rank's black box, and what is told of all boxes when a run goes down or somebody asks.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "black_box.h"
#include "zt/process/emergency.h"
#include "zt/process/world.h"

namespace zt::comm {

// Of this rank; made at the first call, which also makes emergencies call report_flights.
std::shared_ptr<BlackBox> black_box(const World& world);

// This rank's box says from now on that its script has ended. Calls that it has queued, and those of the closing of its state,
// still run.
void note_script_end(const World& world);

// Returns the records of those of these world ranks whose scripts have ended: processes of this machine, or threads of this
// process.
std::vector<Flight> read_ended(std::span<const int> world_ranks);

// A call of this rank has timed out: as below, but always printed.
void report_stuck();

// Notes in the boxes of this process why it ends; then, on one rank of each machine: prints the verdict on stderr if it is grave
// or was asked for, and writes the flights of the machine's ranks to RUN/flight if a run is open. The others wait for that rank,
// a second at most, 0.4 s when told to end, not at all when asked. Thread-safe.
void report_flights(const Emergency& emergency);

}  // namespace zt::comm
