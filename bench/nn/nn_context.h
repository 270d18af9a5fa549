// A layer's context for benchmarks. Gradients are written into buffers that are kept over the steps, as in a step program.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "zt/base/error.h"
#include "zt/model/layer.h"

namespace zt::nn {

// The values of a parameter in a benchmark.
inline at::Tensor& values_of(const Param& param) {
  static std::map<const Param*, at::Tensor> values;
  return values[&param];
}

// Every gradient overwrites its buffer. The buffers are float32, whatever the type of the parameters.
class BenchContext final : public Context {
 public:
  const at::Tensor& param(const Param& param) override { return values_of(param); }
  at::Tensor batch(const std::string& name) override {
    if (!has_batch(name)) misuse("the benchmark's batch has no '{}'", name);
    return fields.at(name);
  }
  bool has_batch(const std::string& name) const override { return fields.contains(name); }
  int64_t first_sample() const override { return 0; }
  Philox rng(Purpose purpose) const override { return Philox::keyed(1, purpose); }
  Communicator& comm(const std::string& axis) override { misuse("the benchmark has no axis '{}'", axis); }
  void loss(const std::string&, at::Tensor sum, Per) override { last_loss = std::move(sum); }
  SinkFn grad_sink(const Param& param) override {
    return [this, &param] {
      at::Tensor& view = views[&param];
      if (!view.defined()) view = at::empty(param.shape, values_of(param).options().dtype(at::kFloat).requires_grad(false));
      return Sink{view, true};
    };
  }
  void defer(std::function<void()> weight_gradient) override { weight_gradient(); }

  std::map<std::string, at::Tensor> fields;
  at::Tensor last_loss;
  std::map<const Param*, at::Tensor> views;
};

}  // namespace zt::nn
