// What the ranks need in host memory, beside what there is.
#pragma once

#include <cstdint>
#include <string>

#include "plan/plan.h"

namespace zt {

// Compares the buffers of all ranks of each machine with its memory, before they are made; activations come on top and are not
// counted. Throws Misuse on all ranks if a machine, its container or a process has less memory in all; warns on the first rank
// of a machine if less is free. Buffers on GPUs are left out. Collective over the mesh.
void check_memory(const Plan& plan);

// What lacks memory: the buffers of a trainer, or the values within a step.
enum class Lacking : uint8_t { buffers, values };

// Returns what to tell beside an OutOfMemory: what this rank's buffers need by kind, and what would need less.
std::string memory_advice(const Plan& plan, Lacking what);

}  // namespace zt
