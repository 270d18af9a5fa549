// Loops that apply a rule (rules.h) to a run of elements.
#pragma once

#include <cstdint>

#include "rules.h"

namespace zt {
enum class Isa : uint8_t;
}

namespace zt::optim {

// The element format of the gradient or the copy. The 16-bit formats require float parameters.
enum class Format : uint8_t { as_param, bfloat16, float16 };

// Arrays of `count` elements. They do not overlap. States that the rule does not use are null.
template <class T>
struct Arrays {
  T* param;
  const void* grad;  // of grad_format; widened before use, which is exact
  T* first;
  T* second;
  uint16_t* copy;  // receives the new parameters, rounded to copy_format; null means no copy
  int64_t count;
  Format grad_format;
  Format copy_format;
};

// Updates the elements on the CPU. Every `isa` gives the same bits. Requires that the processor supports `isa`.
template <class Rule>
void update_cpu(const Rule& rule, const Arrays<typename Rule::Element>& arrays, Isa isa);

// Updates the elements on the current CUDA device, queued on `stream` (a cudaStream_t). Throws std::runtime_error with CUDA's
// message if the launch fails. Defined only where ZT_HAS_CUDA is defined.
template <class Rule>
void update_cuda(const Rule& rule, const Arrays<typename Rule::Element>& arrays, void* stream);

}  // namespace zt::optim
