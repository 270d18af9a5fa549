// A random model and random options, a pure function of a seed.
#pragma once

#include <cstdint>
#include <string>

#include "training.h"

namespace zt::test {

struct FuzzCase {
  Config config;
  std::string text;  // for a person: layers and options
};

FuzzCase fuzz_case(uint32_t seed);

}  // namespace zt::test
