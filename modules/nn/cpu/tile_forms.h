// The loops of tile.h in forms for one instruction set each.
#pragma once

#include "exponential.h"
#include "zt/base/isa.h"

namespace zt::nn::tile {

// What one instruction set holds in its registers: a block of kRows times kBytes of the product, beside a row of b.
template <int rows, int bytes>
struct Form {
  static constexpr int kRows = rows, kBytes = bytes;
};

// Calls body(form), an always inlined function, compiled for `isa`.
template <class Body>
void run(Isa isa, const Body& body) {
  run_as<Form<2, 64>, Form<4, 64>, Form<8, 128>>(isa, body);
}

}  // namespace zt::nn::tile
