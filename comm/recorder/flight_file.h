// Flight records as files: RUN/flight/rank3.json, one per rank, for people and for `ztoolkit flight`.
#pragma once

#include <string>
#include <vector>

#include "flight.h"

namespace zt::comm {

// Writes one file per flight and makes the folder if needed. Throws Fault if a file cannot be written, and
// std::filesystem::filesystem_error if the folder cannot be made.
void write_flights(const std::string& folder, const std::vector<Flight>& flights);
// Returns all flights of a folder, in rank order. Throws Fault if there are none or if a file is not whole.
std::vector<Flight> read_flights(const std::string& folder);

}  // namespace zt::comm
