// Quantises the numbers of a group.
#pragma once

#include <cstdint>

namespace zt::packed {

// A group: number ~ scale * code + minimum. `scale` and `minimum` are numbers of fp16.
struct QuantizedGroup {
  float scale = 0, minimum = 0;
  int8_t codes[128] = {};
};

// These try several scales, fit scale (and minimum) to the codes by least squares, and keep the result with the smallest sum of
// squared errors. `count` is at most 128, and the numbers must be finite. Return false if the scale or the minimum exceeds the
// largest number of fp16. A scale that is too small for fp16 becomes fp16's smallest number, 2^-24.
bool quantize_int8(const float* numbers, int64_t count, QuantizedGroup& group);            // codes -127 .. 127
bool quantize_int4_symmetric(const float* numbers, int64_t count, QuantizedGroup& group);  // codes -8 .. 7
bool quantize_int4(const float* numbers, int64_t count, QuantizedGroup& group);            // codes 0 .. 15

}  // namespace zt::packed
