// A model that is cut over the ranks of the axis tp.
#pragma once

#include <memory>

#include "zt/model/model.h"

namespace zt::test {

// Returns a GPT without position embeddings, which `parts` ranks of the axis tp share: the embedding is cut by rows, and of an
// MLP between the blocks one matrix by rows in two groups and the other by columns. Their sizes are not multiples of most parts.
// With one part it needs no axis.
std::shared_ptr<Model> make_cut_model(int parts);

}  // namespace zt::test
