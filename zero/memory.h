// What training takes of each rank's memory, from a few numbers: the arithmetic of ZeRO.
// S. Rajbhandari et al.: ZeRO: Memory optimizations toward training trillion parameter models. SC 2020.
#pragma once

#include <cstdint>

#include "zt/base/value.h"
#include "zt/model/precision.h"

namespace zt::zero {

struct MemoryOptions {
  int64_t params = 0;        // parameters of the model, all of them trained
  int64_t ranks = 1;         // that a shard is one of
  int stage = 0;             // as of zero.shard
  Precision precision = {};  // Adam in fp32 with 16-bit gradients: 16 bytes a parameter
  int64_t states = 2;        // numbers that the optimizer keeps for a parameter: 2 for Adam, 1 for Lion
  bool node_shared = false;  // the ranks are on one machine and hold the parameters once
  int64_t live = 0;          // stage 3: elements of parameters that are whole at once
  int64_t bucket = 0;        // elements of gradients that are whole at once at stages 2 and 3
  int64_t activations = 0;   // bytes
};

// Bytes a rank, by kind.
struct Memory {
  int64_t parameters = 0, gradients = 0, master = 0, optimizer = 0, buckets = 0, activations = 0;
  int64_t total() const { return parameters + gradients + master + optimizer + buckets + activations; }
};

// Misuse for an unknown key, a wrong type or a value out of range. `optimizer` may stand for states.
MemoryOptions parse_memory_options(const Value& options);

// Pure. A shard of n elements over W ranks has ceil(n / W). With P parameters on N ranks, 16-bit gradients and Adam: 16 P at
// stage 0, 4 P + 12 P / N, 2 P + 14 P / N and 16 P / N at stages 1, 2 and 3. A trainer's own report counts its padding too.
Memory memory_of(const MemoryOptions& options);

}  // namespace zt::zero
