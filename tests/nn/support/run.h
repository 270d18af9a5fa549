// Helpers that run layers in tests: values for parameters, one forward and backward, and comparisons.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/fake_context.h"
#include "zt/model/model.h"

namespace zt::test {

using Tensors = std::map<std::string, at::Tensor>;
using Function = std::function<std::vector<at::Tensor>(at::TensorList, Context&)>;

// A layer, or a whole model as one function, with its parameters.
struct Subject {
  Function forward;
  Params params;
};
Subject subject(std::shared_ptr<Layer> layer);
Subject subject(std::shared_ptr<Model> model);

// Gives all parameters their initial values in `dtype`.
void initialise(const Subject& subject, uint64_t seed, at::ScalarType dtype);
// Returns a layer with its initial values in `dtype`.
Subject initialised(const std::shared_ptr<Layer>& layer, at::ScalarType dtype = at::kDouble);
// Gives parameters values by name. Fails the test if a name or a shape does not match.
void set_values(const Subject& subject, const Tensors& values, at::ScalarType dtype);

struct Result {
  at::Tensor out;   // the first output, undefined if there is none
  at::Tensor loss;  // the sum of the losses, undefined if there is none
  Tensors grads;    // by the name of the parameter
  std::vector<at::Tensor> input_grads;
};
// Runs forward and backward. The gradients are those of sum(cot * first output) + losses, or of the losses alone if `cot` is
// undefined.
Result run(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context, const at::Tensor& cot = {});

// Returns the largest difference between the gradients of run() and central differences in fp64, divided by 1 + the largest
// gradient. Compares every element of every parameter and input.
double gradient_error(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context);

// Returns || a - b || / || b ||, computed in fp64; 0 if a equals b.
double distance(const at::Tensor& a, const at::Tensor& b);

at::Tensor longs(const std::vector<int64_t>& values, at::IntArrayRef shape);

// Returns the message of the Misuse that `action` throws, or "no Misuse".
std::string misuse_of(const std::function<void()>& action);

}  // namespace zt::test
