// Layers beside the experts: a shared expert, and the dense branch of a residual mixture.
#pragma once

#include <cstdint>
#include <memory>

#include "zt/model/layer.h"

namespace zt::moe {

// Returns a layer that runs `branch` (one input, one output) on `h` and outputs `shared`. With a gate, each row is multiplied by
// sigmoid(gate h): parameter gate [1, hidden] (Qwen2-MoE).
std::shared_ptr<Layer> make_shared_expert(std::shared_ptr<Layer> branch, int64_t hidden, bool has_gate);

// Returns a layer that mixes `branch` with the experts by learnt coefficients c = softmax(mix h + bias): it multiplies
// `route_weights` by c[0] and outputs `shared` = c[1] * branch(h). Parameters mix.weight [2, hidden], mix.bias [2].
// S. Rajbhandari et al.: DeepSpeed-MoE. ICML 2022 (PR-MoE).
std::shared_ptr<Layer> make_residual_branch(std::shared_ptr<Layer> branch, int64_t hidden);

}  // namespace zt::moe
