// Splits backwards in two, so that other positions need not wait for weight gradients.
// P. Qi et al.: Zero bubble pipeline parallelism. ICLR 2024.
#pragma once

#include <memory>

#include "zt/program/rank_program.h"

namespace zt {

// Returns a pass that replaces each B by I and W, one directly after the other; a schedule may then move W. A B stays whole if
// its position has no trainable parameter, or adds a loss: the logits of a head are kept until its W, so its W is due at once
// anyway. Gradients have the same bits with and without the pass. Programs of other modes than training do not change. Phase
// compute.
std::shared_ptr<Pass> make_split_backward();

// Returns whether the backward of a position can be split: it has weights to train and adds no loss.
bool can_split_backward(const PositionInfo& position, const ModelInfo& model);

}  // namespace zt
