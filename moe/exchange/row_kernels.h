// The loops of rows.h on the CPU, for consecutive tokens. They are compiled for AVX-512, AVX2 and the baseline; all three give
// equal bits. T is the stored type: double, float, c10::BFloat16 or c10::Half. Loops compute in Wide<T>, and round each result
// once, to nearest even.
//
// Tokens are [tokens, width], rows [rows, width], places and factors [tokens, routes], all contiguous. places[token * routes +
// route] is the row of an assignment, or -1. Null factors count as 1.
#pragma once

#include <cstdint>

#include "zt/base/float16.h"
#include "zt/base/isa.h"

namespace zt::moe::kernels {

struct Tokens {
  const int64_t* places;
  int64_t begin, end;  // the tokens of this call
  int64_t routes, width;
  // Stores bypass the caches, for results that are larger than them: otherwise memory is read before it is written.
  bool streams;
  Isa isa;
};

// Copies each token to its rows.
template <class T>
void copy_to_rows(T* rows, const T* tokens, const Tokens& shape);

// Writes to each token its value in `more` (null: 0), plus its rows times their factors, in ascending order of routes.
template <class T>
void sum_to_tokens(T* tokens, const T* rows, const Wide<T>* factors, const T* more, const Tokens& shape);

// The gradients of that sum: `of_rows` gets each token's gradient times the factor of the row, and `of_factors` [tokens, routes]
// the inner product of the token's gradient and the row; assignments without a row keep their value. An inner product has a
// partial sum for each place in a line of 64 bytes; halves of them are added at the end, again and again.
template <class T>
void sum_backward(T* of_rows, Wide<T>* of_factors, const T* of_tokens, const T* rows, const Wide<T>* factors,
                  const Tokens& shape);

}  // namespace zt::moe::kernels
