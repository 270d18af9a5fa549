// Recompute (activation checkpointing): a layer's graph is dropped after its forward and made again before its backward.
// T. Chen et al.: Training deep nets with sublinear memory cost. 2016.
#pragma once

#include <memory>

#include "zt/program/program.h"

namespace zt {

// Of the positions worth it - they have parameters, a differentiable input, and a later position reads them - every k-th
// is recomputed: with every = 1 all of them, with every = 2 the second, the fourth and so on, counted over the whole model.
//
// The F of such a position gets keep = "inputs" and an R is put right before its B. Outputs of all positions are kept until
// their B in any case, since the next position's F and R read them; what is saved is what lies between a position's input and
// its output. Gradients have the same bits with and without. Programs that do not train are left alone.
//
// Phase compute. Misuse if every < 1.
std::shared_ptr<Pass> make_recompute(int every);

}  // namespace zt
