// This rank's black box, and the report on all boxes of the machine, which is written when a run fails or on request.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "black_box.h"
#include "zt/process/emergency.h"
#include "zt/process/world.h"

namespace zt::comm {

// Returns the black box of this rank. The first call makes it, and registers report_flights for emergencies.
std::shared_ptr<BlackBox> black_box(const World& world);

// Records in this rank's box that its script has ended. Calls that are queued, or made while its Lua state closes, still run.
void note_script_end(const World& world);

// Returns the flights of those of the `world_ranks` whose scripts have ended: processes of this machine, or threads of this
// process.
std::vector<Flight> read_ended(std::span<const int> world_ranks);

// Reports that a call of this rank has timed out: as report_flights, but the verdict is always printed.
void report_stuck();

// Records in the boxes of this process why it ends. Then one rank per machine prints the verdict on stderr, if it is grave or was
// asked for, and writes the flights of the machine's ranks to RUN/flight, if a run is open. The other ranks wait for that rank,
// for at most 1 s, or 0.4 s if told to end, or not at all if asked. Thread-safe.
void report_flights(const Emergency& emergency);

}  // namespace zt::comm
