// Computes the memory that training needs per rank, by the formulas of ZeRO.
// S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter models. SC 2020.
#pragma once

#include <cstdint>

#include "zt/base/value.h"
#include "zt/model/precision.h"

namespace zt::zero {

struct MemoryOptions {
  int64_t params = 0;        // number of parameters of the model, all trainable
  int64_t ranks = 1;         // number of ranks over which the model is sharded
  int stage = 0;             // stage of zero.shard
  Precision precision = {};  // with Adam in fp32 and 16-bit parameters and gradients: 16 bytes per parameter
  int64_t states = 2;        // numbers that the optimizer keeps per parameter: 2 for Adam, 1 for Lion
  bool node_shared = false;  // the ranks are on one machine and hold the parameters once
  int64_t live = 0;          // stage 3: largest number of parameter elements that are whole at the same time
  int64_t bucket = 0;        // stages 2 and 3: largest number of gradient elements that are whole at the same time
  int64_t activations = 0;   // bytes
};

// Bytes per rank, by kind.
struct MemoryEstimate {
  int64_t parameters = 0, gradients = 0, master = 0, optimizer = 0, buckets = 0, activations = 0;
  int64_t total() const { return parameters + gradients + master + optimizer + buckets + activations; }
};

// Throws Misuse for an unknown key, a wrong type or a value out of range. The key `optimizer` may replace `states`.
MemoryOptions parse_memory_options(const Value& options);

// Pure. A shard of n elements over W ranks has ceil(n / W) elements. With P parameters on N ranks, 16-bit gradients and Adam:
// 16 P bytes at stage 0, 4 P + 12 P / N, 2 P + 14 P / N and 16 P / N at stages 1, 2 and 3. Padding is not included; a trainer's
// own report includes it.
MemoryEstimate memory_of(const MemoryOptions& options);

}  // namespace zt::zero
