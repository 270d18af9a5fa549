#include <algorithm>
#include <limits>

#include "tile.h"
#include "tile_forms.h"

namespace zt::nn::tile {

namespace {

template <class A, class Term>
ZT_INLINE A lane_sum(int64_t chunks, const Term& term) {
  A lanes[kChunk] = {};
  for (int64_t j = 0; j < chunks; j += kChunk) {
    for (int lane = 0; lane < kChunk; ++lane) lanes[lane] += term(j + lane);
  }
  for (int half = kChunk / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <class A>
ZT_INLINE A lane_max(int64_t chunks, const A* x) {
  A lanes[kChunk];
  for (A& lane : lanes) lane = -std::numeric_limits<A>::infinity();
  for (int64_t j = 0; j < chunks; j += kChunk) {
    for (int lane = 0; lane < kChunk; ++lane) lanes[lane] = lanes[lane] > x[j + lane] ? lanes[lane] : x[j + lane];
  }
  for (int half = kChunk / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] > lanes[lane + half] ? lanes[lane] : lanes[lane + half];
  }
  return lanes[0];
}

// Sets the scores of keys that row i does not see to -inf, up to the end of the last chunk that is read.
template <class A>
ZT_INLINE void hide(A* scores, const AttentionMask& mask, int64_t i, int64_t width) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  for (int64_t j = width; j < padded(width); ++j) scores[j] = kHidden;
  for (int64_t j = 0; j < std::min(mask.first[i], width); ++j) scores[j] = kHidden;
  if (!mask.query_segments) return;
  const int64_t mine = mask.query_segments[i];
  for (int64_t j = 0; j < width; ++j) scores[j] = mask.key_segments[j] == mine ? scores[j] : kHidden;
}

template <class A>
ZT_INLINE void drop(A* weights, const AttentionMask& mask, int64_t i, int64_t width) {
  if (!mask.keep) return;
  const uint8_t* keep = mask.keep + i * mask.keep_row;
  const A scale = static_cast<A>(mask.keep_scale);
  for (int64_t j = 0; j < width; ++j) weights[j] = keep[j] ? weights[j] * scale : A(0);
}

template <class A>
ZT_INLINE void softmax_row(A* scores, const AttentionMask& mask, int64_t i, const Softmax<A>& state) {
  const int64_t width = mask.end[i], chunks = padded(width);
  hide(scores, mask, i, width);
  const A here = lane_max(chunks, scores), before = state.largest[i];
  const A largest = before > here ? before : here;
  // If the row has seen no key yet, any finite number will do: it only has to avoid inf - inf.
  const A origin = largest == -std::numeric_limits<A>::infinity() ? A(0) : largest;
  const A sum = lane_sum<A>(
      chunks, [=](int64_t j) __attribute__((always_inline)) { return scores[j] = exponential(scores[j] - origin); });
  for (int64_t j = chunks; j < padded(mask.keys); ++j) scores[j] = 0;
  drop(scores, mask, i, width);
  state.largest[i] = largest;
  const A correction = exponential(before - origin);
  state.sum[i] = state.sum[i] * correction + sum;
  if (!state.mixed) return;
  A* mixed = state.mixed + i * state.columns;
  for (int64_t d = 0; d < state.columns; ++d) mixed[d] *= correction;
}

template <class A>
ZT_INLINE void softmax_backward_row(A* scores, A* grads, const AttentionMask& mask, int64_t i, A logsumexp, A dot) {
  const int64_t width = mask.end[i], chunks = padded(width);
  const A origin = logsumexp == -std::numeric_limits<A>::infinity() ? A(0) : logsumexp;  // of a row that sees no key at all
  hide(scores, mask, i, width);
  drop(grads, mask, i, width);
  for (int64_t j = 0; j < chunks; ++j) {
    scores[j] = exponential(scores[j] - origin);
    grads[j] = scores[j] * (grads[j] - dot);
  }
  drop(scores, mask, i, width);
  for (int64_t j = chunks; j < padded(mask.keys); ++j) scores[j] = grads[j] = 0;
}

}  // namespace

template <class A>
void softmax(Isa isa, A* scores, int64_t row, int64_t rows, const AttentionMask& mask, const Softmax<A>& state) {
  run(
      isa, [=](auto) __attribute__((always_inline)) {
        for (int64_t i = 0; i < rows; ++i) softmax_row(scores + i * row, mask, i, state);
      });
}

template <class A>
void softmax_backward(Isa isa, A* scores, A* grads, int64_t row, int64_t rows, const AttentionMask& mask, const A* logsumexp,
                      const A* dot) {
  run(
      isa, [=](auto) __attribute__((always_inline)) {
        for (int64_t i = 0; i < rows; ++i) {
          softmax_backward_row(scores + i * row, grads + i * row, mask, i, logsumexp[i], dot[i]);
        }
      });
}

template <class A>
void row_dots(Isa isa, A* dot, const A* a, const A* b, int64_t rows, int64_t columns) {
  const int64_t row = padded(columns);
  run(
      isa, [=](auto) __attribute__((always_inline)) {
        for (int64_t i = 0; i < rows; ++i) {
          dot[i] = lane_sum<A>(
              row, [=](int64_t d) __attribute__((always_inline)) { return a[i * row + d] * b[i * row + d]; });
        }
      });
}

#define ZT_DEFINE_SOFTMAX(A)                                                                               \
  template void softmax(Isa, A*, int64_t, int64_t, const AttentionMask&, const Softmax<A>&);               \
  template void softmax_backward(Isa, A*, A*, int64_t, int64_t, const AttentionMask&, const A*, const A*); \
  template void row_dots(Isa, A*, const A*, const A*, int64_t, int64_t);

ZT_DEFINE_SOFTMAX(float)
ZT_DEFINE_SOFTMAX(double)

}  // namespace zt::nn::tile
