// This rank's black box, and what is told of all boxes when a run goes down or somebody asks.
#pragma once

#include <memory>
#include <string>

#include "flight/black_box.h"
#include "zt/emergency.h"
#include "zt/world.h"

namespace zt::comm {

// Of this rank; made at the first call, which also makes emergencies call report_flights.
std::shared_ptr<BlackBox> black_box(const World& world);

// The box will say that the script has ended, from before MPI's own end on, which waits for the other ranks: to be called when
// MPI has started. For ranks that are processes.
void note_end_at_shutdown(const World& world);

// A call of this rank has timed out: as below, but always printed.
void report_stuck();

// Notes in the boxes of this process why it ends; then, on one rank of each machine: prints the verdict on stderr if it is grave
// or was asked for, and writes the flights of the machine's ranks to RUN/flight if a run is open. The others wait for that rank,
// a second at most, 0.4 s when told to end, not at all when asked. Thread-safe.
void report_flights(const Emergency& emergency);

}  // namespace zt::comm
