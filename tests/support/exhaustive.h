// How many cases the random and combined tests run: few by default, ten times as many with `scripts/test.sh --exhaustive`.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace zt::test {

// Returns whether the environment variable ZT_EXHAUSTIVE is set, as `scripts/test.sh --exhaustive` does.
inline bool is_exhaustive() {
  return std::getenv("ZT_EXHAUSTIVE") != nullptr;
}

// Returns the number of cases of a random test.
inline int64_t number_of_cases(int64_t by_default) {
  return is_exhaustive() ? 10 * by_default : by_default;
}

}  // namespace zt::test
