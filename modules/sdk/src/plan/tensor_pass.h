// The actions that bring whole tensors to the ranks that update them.
#pragma once

#include <memory>

#include "zt/model/optimizer.h"
#include "zt/program/program.h"

namespace zt {

// Returns the program with GATHER_TENSORS and SCATTER_TENSORS for the optimizer, if it needs whole tensors; `optimizer` may be
// null. Where the training program has them already, as one that was read from a text, nothing is added.
std::shared_ptr<const Program> with_tensor_moves(std::shared_ptr<const Program> program,
                                                 std::shared_ptr<const Optimizer> optimizer);

}  // namespace zt
