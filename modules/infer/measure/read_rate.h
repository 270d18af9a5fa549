// How fast memory is read: the limit of an answer's rate where each token reads all weights.
#pragma once

#include <cstdint>

namespace zt::infer {

// Returns the bytes of the last cache of the processor; 32 MiB if the system does not say.
int64_t last_cache_bytes();

// Returns the bytes per second at which this rank's threads together read a buffer of `bytes` bytes: the best of repeated runs
// over at least `seconds`.
double read_rate(int64_t bytes, double seconds);

}  // namespace zt::infer
