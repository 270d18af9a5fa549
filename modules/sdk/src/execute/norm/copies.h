// Compares the gradients of parameters that several ranks hold whole because they share work on the same samples.
#pragma once

#include <string>
#include <vector>

#include "zt/execute/executor.h"

namespace zt {

// Returns the axes along which the ranks of `axes` hold the same elements of the unit's gradient shard.
std::vector<std::string> copy_axes(const Unit& unit, const std::vector<std::string>& axes, const StepState& state);

// Returns whether the next NORM of finite gradients compares copies: the first one, and some later ones, because a mistake may
// show only after a parameter is no longer zero.
bool compares_copies(const StepState& state);
// Notes what differing_copies needs of a gradient that is about to leave the memory. `axes`: those of NORM.
void note_norms(const Unit& unit, const std::vector<std::string>& axes, StepState& state);

// Returns what is wrong if ranks that hold the same values of a parameter, and share work on the same samples along one of
// `axes`, have other gradients of it, or if ranks that have the same tokens have other losses; else an empty text. They would
// train other weights, with numbers that seem right. Rounding may differ between machines and, on GPUs, from run to run, so norms
// are compared with some tolerance. `norm`: that of all gradients. `losses`: this rank's sums by position. Collective over
// `axes`, and the same on all of their ranks.
std::string differing_copies(const std::vector<std::string>& axes, double norm, const at::Tensor& losses, const StepState& state);

}  // namespace zt
