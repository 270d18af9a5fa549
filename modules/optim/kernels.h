// Loops that apply a rule (rules.h) to a run of elements.
#pragma once

#include <cstdint>

#include "rules.h"

namespace zt {
enum class Isa : uint8_t;
}

namespace zt::optim {

// `count` elements. States that the rule does not have are null. Nothing overlaps.
template <class T>
struct Arrays {
  T* param;
  const T* grad;
  T* first;
  T* second;
  int64_t count;
};

// On the CPU. The same bits for every `isa`, which the processor must support.
template <class Rule>
void update_cpu(const Rule& rule, const Arrays<typename Rule::Element>& arrays, Isa isa);

// On the current CUDA device, queued on `stream` (a cudaStream_t). Throws std::runtime_error with CUDA's message if the
// launch fails. Present only where ZT_HAS_CUDA is defined.
template <class Rule>
void update_cuda(const Rule& rule, const Arrays<typename Rule::Element>& arrays, void* stream);

}  // namespace zt::optim
