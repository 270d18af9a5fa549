// Unusual layers, for steps in which gradients easily become wrong.
#pragma once

#include <memory>
#include <string>

#include "zt/model/layer.h"

namespace zt::test {

// Returns h + mean(used) + mean(unused) * wanted, where `wanted` is a batch field [samples] of float 0 or 1. If `wanted` is 0 for
// all samples of a micro-batch, or is not in the batch, the parameter `unused` is not read. Both parameters are vectors of odd
// lengths.
std::shared_ptr<Layer> make_partly_used();

// Reads h and returns "aside", which no layer reads: the layer's parameter gets no gradient.
std::shared_ptr<Layer> make_unread(int64_t hidden);

// Returns h and "aside", tanh(h).
std::shared_ptr<Layer> make_fork();
// Reads h and "aside"; returns h + w aside with one number w.
std::shared_ptr<Layer> make_join();

// Returns h and multiplies its gradient by 1 + the batch field "spike" [samples], float; by 1 if the batch has no such field.
std::shared_ptr<Layer> make_spike();

// Returns h, and adds the loss "hot": the sum over i of c(i) w(i), per sample. So the gradient of the parameter w [numel] is c,
// which is 1000 in [begin, end) and 0.001 elsewhere.
std::shared_ptr<Layer> make_hot(int64_t numel, int64_t begin, int64_t end);

// A whole model in one layer. Its parameter is one number; the loss is the squared distance of the number to tokens / 37.
std::shared_ptr<Layer> make_guess();

// Returns h times a weight, divided by a number that it copies to the host. Tensors without memory (device meta) have no such
// number, so the layer cannot be planned.
std::shared_ptr<Layer> make_unplannable();

}  // namespace zt::test
