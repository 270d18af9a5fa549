#include "support/fake_context.h"

#include <ATen/ops/full.h>

#include <limits>

#include "zt/base/error.h"

namespace zt::test {

at::Tensor& values_of(const Param& param) {
  static std::map<const Param*, at::Tensor> values;
  return values[&param];
}

at::Tensor FakeContext::batch(const std::string& name) {
  if (!has_batch(name)) misuse("the batch has no field '{}'", name);
  return fields.at(name);
}

Philox FakeContext::rng(Purpose purpose) const {
  return Philox::keyed(seed, purpose, static_cast<uint64_t>(position), static_cast<uint64_t>(step));
}

Communicator& FakeContext::comm(const std::string& axis) {
  misuse("a fake context has no axis '{}'", axis);
}

Context::SinkFn FakeContext::grad_sink(const Param& param) {
  return [this, &param]() -> Sink {
    if (!keeps_gradients || !param.trainable) return {};
    const bool first = !sunk.contains(&param);
    if (first)
      sunk[&param] =
          at::full(param.shape, std::numeric_limits<double>::quiet_NaN(), values_of(param).options().requires_grad(false));
    return {sunk.at(&param), first};
  };
}

void FakeContext::defer(std::function<void()> weight_gradient) {
  if (defers) deferred.push_back(std::move(weight_gradient));
  else weight_gradient();
}

}  // namespace zt::test
