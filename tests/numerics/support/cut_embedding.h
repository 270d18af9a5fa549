// A model whose embedding is cut by rows over the ranks of the axis tp.
#pragma once

#include <memory>

#include "zt/model/model.h"

namespace zt::test {

// Returns a GPT without position embeddings, whose embedding [kVocab + 1, hidden] is cut into `parts` boxes of equal size, one
// per rank of the axis tp. With one part it needs no axis.
std::shared_ptr<Model> make_cut_model(int parts);

}  // namespace zt::test
