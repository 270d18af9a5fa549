// Flights as files: RUN/flight/rank3.json, one per rank, for people and for `ztoolkit flight`.
#pragma once

#include <string>
#include <vector>

#include "flight.h"

namespace zt::comm {

// Makes the folder. Fault when something cannot be written.
void write_flights(const std::string& folder, const std::vector<Flight>& flights);
// All of a folder, by rank. Fault when there is none, or a file is not whole.
std::vector<Flight> read_flights(const std::string& folder);

}  // namespace zt::comm
