// Running layers in tests: values for parameters, one forward and backward, and what to compare.
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

// A layer, or a model run through as one function, with its parameters.
struct Subject {
  Function forward;
  std::vector<std::shared_ptr<Param>> params;
};
Subject subject(std::shared_ptr<Layer> layer);
Subject subject(std::shared_ptr<Model> model);

// Gives all parameters their initial values in `dtype`.
void initialise(const Subject& subject, uint64_t seed, at::ScalarType dtype);
// A layer with its initial values.
Subject initialised(const std::shared_ptr<Layer>& layer, at::ScalarType dtype = at::kDouble);
// Gives parameters values by name. Fails the test for a name or shape that does not fit.
void set_values(const Subject& subject, const Tensors& values, at::ScalarType dtype);

struct Result {
  at::Tensor out;   // the first output, undefined if there is none
  at::Tensor loss;  // the sum of the losses, undefined if there is none
  Tensors grads;    // by parameter
  std::vector<at::Tensor> input_grads;
};
// The gradient of sum(cot * first output) + losses. `cot` undefined: the losses only.
Result run(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context, const at::Tensor& cot = {});

// The largest difference between the gradients of run() and central differences in fp64, divided by 1 + the largest
// gradient. Every element of every parameter and input is moved.
double gradient_error(const Subject& subject, std::vector<at::Tensor> inputs, FakeContext& context);

// || a - b || / || b || in fp64.
double distance(const at::Tensor& a, const at::Tensor& b);

at::Tensor longs(const std::vector<int64_t>& values, at::IntArrayRef shape);

// The message of the Misuse that `action` throws.
std::string misuse_of(const std::function<void()>& action);

}  // namespace zt::test
