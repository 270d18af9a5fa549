// A Context for tests of layers, without an executor. The test sets the batch fields, and reads the recorded losses and
// gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "zt/model/layer_extras.h"

namespace zt::test {

// The values of a parameter in tests of layers.
at::Tensor& values_of(const Param& param);

class FakeContext : public Context, public ContextExtras {
 public:
  struct Loss {
    std::string name;
    at::Tensor sum;
    Per per;
  };

  std::map<std::string, at::Tensor> fields;
  LayerBuffers buffers;
  int64_t sample = 0;           // result of first_sample()
  uint64_t seed = 1;            // seed of the random streams
  bool keeps_gradients = true;  // false: grad_sink gives undefined views
  bool defers = false;          // true: weight gradients are queued in `deferred`; false: they run at once
  std::vector<Loss> losses;
  std::map<const Param*, at::Tensor> sunk;  // gradients that layers wrote by grad_sink
  std::vector<std::function<void()>> deferred;

  const at::Tensor& param(const Param& param) override { return values_of(param); }
  const at::Tensor& buffer(const std::string& name) override { return buffers.at(name); }
  void watch(const std::string&, const at::Tensor&) override {}
  void keep(std::vector<at::Tensor> choices) override { choices_ = std::move(choices); }
  std::vector<at::Tensor> kept() const override { return recompute ? choices_ : std::vector<at::Tensor>(); }
  at::Tensor batch(const std::string& name) override;
  bool has_batch(const std::string& name) const override { return fields.contains(name); }
  int64_t first_sample() const override { return sample; }
  Philox rng(Purpose purpose) const override;
  Communicator& comm(const std::string& axis) override;
  void loss(const std::string& name, at::Tensor sum, Per per) override { losses.push_back({name, std::move(sum), per}); }
  // A new sink holds NaN, so that a layer that adds instead of overwriting it fails its test.
  SinkFn grad_sink(const Param& param) override;
  void defer(std::function<void()> weight_gradient) override;

 private:
  std::vector<at::Tensor> choices_;
};

}  // namespace zt::test
