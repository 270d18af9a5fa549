// The choice of experts. To add one, see README.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "routing/router_options.h"
#include "zt/base/object.h"
#include "zt/model/layer.h"

namespace zt::moe {

// The sizes of a choice: `routes` of `experts` experts for each token.
struct RouteSizes {
  int64_t samples, tokens, routes, experts;
};

// The values by which experts are chosen.
struct Candidates {
  const at::Tensor& logits;   // [samples * tokens, experts], with a graph, on the layer's device
  const at::Tensor& scores;   // the same of the scores
  const at::Tensor& counted;  // bool [samples * tokens]: see counted_tokens
  int64_t samples, tokens;    // tokens of a sample
  int64_t routes;             // of a token
  int64_t experts() const { return scores.size(1); }
  RouteSizes sizes() const { return {samples, tokens, routes, experts()}; }
};

// Chooses experts. Several routers and threads may share one.
class Selection {
 public:
  virtual ~Selection() = default;
  // Returns what all ranks must have alike, and messages show: "the function at exp.lua:12".
  virtual std::string kind() const = 0;
  // Returns how many routes a token has, some of which may be empty.
  virtual int64_t routes(const RouterOptions& options) const { return options.top_k; }
  // Returns int64 [samples * tokens, routes] in host memory: the experts of each token, -1 for an empty route. Must not depend on
  // which samples are in the same micro-batch. Is not called in a recompute, which uses the experts of the first forward, nor in
  // plans.
  virtual at::Tensor select(const Candidates& candidates, Context& context) const = 0;
  // Throws Misuse if it cannot take fields of a micro-batch, as LayerExtras::check_batch.
  virtual void check_batch(const RouterOptions& /*options*/, const BatchField& /*batch*/) const {}
  // Returns whether no expert gets more tokens than the capacity allows, so that none have to be dropped.
  virtual bool fits_capacity() const { return false; }
};

// Returns the selection that the options name, or their own one.
std::shared_ptr<const Selection> make_selection(const RouterOptions& options);

// Throws Misuse unless `experts` is int64 [samples, tokens, routes], in host memory, with experts or -1, and no expert twice
// for a token. `name` begins the message: "the recorded routes 'routes'".
void check_routes(const at::Tensor& experts, const RouteSizes& sizes, const std::string& name);

}  // namespace zt::moe

namespace zt {
ZT_OBJECT(moe::Selection)
}
