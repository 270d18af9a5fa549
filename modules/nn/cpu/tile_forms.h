// Compiles the loops of tile.h for several instruction sets.
#pragma once

#include "exponential.h"
#include "zt/base/isa.h"

namespace zt::nn::tile {

// The block sizes for one instruction set: a block of the result of kRows rows and kBytes bytes per row fits the registers,
// together with a row of b.
template <int rows, int bytes>
struct Form {
  static constexpr int kRows = rows, kBytes = bytes;
};

// Calls body(form), compiled for `isa`. `body` must be marked always_inline.
template <class Body>
void run(Isa isa, const Body& body) {
  run_as<Form<2, 64>, Form<4, 64>, Form<8, 128>>(isa, body);
}

}  // namespace zt::nn::tile
