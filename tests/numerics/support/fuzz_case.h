// A random model with random options, as a pure function of a seed.
#pragma once

#include <cstdint>
#include <string>

#include "numerics/support/training.h"

namespace zt::test {

struct FuzzCase {
  Config config;
  std::string text;  // layers and options, for people
};

FuzzCase fuzz_case(uint32_t seed);

}  // namespace zt::test
