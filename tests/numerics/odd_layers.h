// Layers that no model should have, for steps in which gradients easily go wrong.
#pragma once

#include <memory>
#include <string>

#include "zt/model/layer.h"

namespace zt::test {

// h + mean over `used` + mean over `unused` times the batch field "wanted" [samples], float 0 or 1. Where no sample of a
// micro-batch wants it, or the batch has no such field, `unused` is not touched. Both parameters are vectors of odd lengths.
std::shared_ptr<Layer> make_partly_used();

// Reads h and yields "aside", which nobody reads: its parameter gets no gradient.
std::shared_ptr<Layer> make_unread(int64_t hidden);

// h, whose gradient is multiplied by 1 + the batch field "spike" [samples], float; h alone where the batch has none.
std::shared_ptr<Layer> make_spike();

// h; adds the loss "hot", sum over i of c(i) w(i), per sample, so that the gradient of its parameter w [numel] is c: 1000 in
// [begin, end), 0.001 elsewhere.
std::shared_ptr<Layer> make_hot(int64_t numel, int64_t begin, int64_t end);

// A whole model in one layer: one number, whose squared distance to the tokens / 37 is the loss.
std::shared_ptr<Layer> make_guess();

// h times a weight by way of a number on the host, which a tensor without memory does not have.
std::shared_ptr<Layer> make_unplannable();

}  // namespace zt::test
