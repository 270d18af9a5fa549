// Helpers of the tests of optim.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <memory>
#include <string>

#include "flat/adagrad.h"
#include "flat/adam.h"
#include "flat/lion.h"
#include "flat/sgd.h"

namespace zt::optim::test {

using Make = std::shared_ptr<Optimizer> (*)(const Value&, Isa);

struct Kind {
  Make make;
  Value::Table options;  // example options
};

// Returns one example per rule of rules.h.
inline std::map<std::string, Kind> kinds() {
  return {{"adamw", {make_adamw, {{"lr", 0.01}, {"weight_decay", 0.1}}}},
          {"adam", {make_adam, {{"lr", 0.01}, {"weight_decay", 0.1}}}},
          {"adagrad", {make_adagrad, {{"lr", 0.01}, {"weight_decay", 0.1}}}},
          {"sgd", {make_sgd, {{"lr", 0.01}, {"weight_decay", 0.1}}}},
          {"sgd momentum", {make_sgd, {{"lr", 0.01}, {"weight_decay", 0.1}, {"momentum", 0.9}}}},
          {"sgd nesterov", {make_sgd, {{"lr", 0.01}, {"weight_decay", 0.1}, {"momentum", 0.9}, {"nesterov", true}}}},
          {"lion", {make_lion, {{"lr", 0.01}, {"weight_decay", 0.1}}}}};
}

inline ParamInfo param_named(const std::string& name) {
  ParamInfo param;
  param.name = name;
  return param;
}

// Returns normally distributed numbers of mean 0 and variance 1.
inline at::Tensor numbers(int64_t count, uint64_t seed, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn({count}, generator, at::kDouble).to(dtype);
}

// Returns a shard with a copy of `params` and states of zeros.
inline FlatState shard_of(const Optimizer& optimizer, const at::Tensor& params) {
  FlatState shard{params.clone(), {}};
  for (const std::string& name : optimizer.state_names()) shard.state[name] = at::zeros_like(params);
  return shard;
}

// Returns one segment over the whole shard.
inline std::vector<Segment> whole(const FlatState& shard) {
  return {{0, 0, 0, shard.master.numel()}};
}

// Returns the message of the Misuse that `call` throws; empty if it throws none.
template <class Call>
std::string complaint(Call call) {
  try {
    call();
  } catch (const Misuse& error) {
    return error.what();
  }
  return "";
}

}  // namespace zt::optim::test
