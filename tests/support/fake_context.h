// A layer's context without an executor: batch fields are given, losses and gradients are kept for the test to read.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "zt/model/layer.h"

namespace zt::test {

class FakeContext : public Context {
 public:
  struct Loss {
    std::string name;
    at::Tensor sum;
    Per per;
  };

  std::map<std::string, at::Tensor> fields;
  int64_t sample = 0;           // what first_sample() says
  uint64_t seed = 1;            // of the random streams
  bool keeps_gradients = true;  // false: sinks are undefined
  bool defers = false;          // true: weight gradients wait in `deferred`
  std::vector<Loss> losses;
  std::map<const Param*, at::Tensor> sunk;  // gradients that layers accumulated themselves
  std::vector<std::function<void()>> deferred;

  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string& name) const override { return fields.contains(name); }
  int64_t first_sample() const override { return sample; }
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override;
  void loss(const std::string& name, at::Tensor sum, Per per) override { losses.push_back({name, std::move(sum), per}); }
  // A new sink holds nan: a layer that adds where it should overwrite shows.
  std::function<Sink()> grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;
};

}  // namespace zt::test
