// Recompute (activation checkpointing): a layer's graph is freed after its forward and computed again before its backward.
// T. Chen et al.: Training deep nets with sublinear memory cost. 2016.
#pragma once

#include <memory>

#include "zt/program/rank_program.h"

namespace zt {

// Returns a pass that recomputes every k-th eligible position, k = `every`. A position is eligible if it has parameters and a
// differentiable input, and a later position reads its output. With every = 1 all of these are recomputed; with every = 2 the
// second, the fourth and so on, counted over the whole model.
//
// The F of a recomputed position gets keep = "inputs", and an R is inserted right before its B. Outputs of all positions are kept
// until their B in any case, because the F and R of later positions read them. What is saved is the memory of the tensors between
// a position's inputs and its outputs. Gradients have the same bits with and without the pass. Programs of other modes than
// training do not change.
//
// Phase compute. Throws Misuse if every < 1; apply throws Misuse if the program is recomputed already.
std::shared_ptr<Pass> make_recompute(int every);

}  // namespace zt
