// Loops that apply a rule (rules.h) to a run of elements.
#pragma once

#include <cstdint>

#include "rules.h"

namespace zt {
enum class Isa : uint8_t;
}

namespace zt::optim {

// How the elements of an array beside the parameters are held. A 16-bit one stands beside float parameters only.
enum class Format : uint8_t { as_param, bfloat16, float16 };

// `count` elements. States that the rule does not have are null. Nothing overlaps.
template <class T>
struct Arrays {
  T* param;
  const void* grad;  // of grad_format; widened first, which is exact
  T* first;
  T* second;
  uint16_t* copy;  // null: none; otherwise the new parameters, rounded to copy_format
  int64_t count;
  Format grad_format;
  Format copy_format;
};

// On the CPU. The same bits for every `isa`, which the processor must support.
template <class Rule>
void update_cpu(const Rule& rule, const Arrays<typename Rule::Element>& arrays, Isa isa);

// On the current CUDA device, queued on `stream` (a cudaStream_t). Throws std::runtime_error with CUDA's message if the
// launch fails. Present only where ZT_HAS_CUDA is defined.
template <class Rule>
void update_cuda(const Rule& rule, const Arrays<typename Rule::Element>& arrays, void* stream);

}  // namespace zt::optim
