// The loops of tile.h in forms for one instruction set each.
#pragma once

#include "exponential.h"
#include "zt/isa.h"

namespace zt::nn::tile {

// What one instruction set holds in its registers: a block of kRows times kBytes of the product, beside a row of b.
template <int rows, int bytes>
struct Form {
  static constexpr int kRows = rows, kBytes = bytes;
};

template <class Body>
void run_plain(const Body& body) {
  body(Form<2, 64>{});
}
template <class Body>
ZT_TARGET_AVX2 void run_avx2(const Body& body) {
  body(Form<4, 64>{});
}
template <class Body>
ZT_TARGET_AVX512 void run_avx512(const Body& body) {
  body(Form<8, 128>{});
}
// Calls body(form), an always inlined function, compiled for `isa`.
template <class Body>
void run(Isa isa, const Body& body) {
  switch (isa) {
    case Isa::plain:
      return run_plain(body);
    case Isa::avx2:
      return run_avx2(body);
    case Isa::avx512:
      return run_avx512(body);
  }
}

}  // namespace zt::nn::tile
