// What the layers of both dispatchers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exchange/exchange.h"
#include "zt/model/layer_extras.h"

namespace zt::moe {

// Returns x [..., n] as contiguous [rows, n].
at::Tensor as_rows(const at::Tensor& x);
// Returns the experts [..., routes] as int64 [tokens, routes] in host memory: the one read per layer that waits for a device.
at::Tensor routes_on_host(const at::Tensor& experts);
// Returns the gradient, contiguous; zeros like `value` if it is undefined, so that all ranks still communicate.
at::Tensor gradient_or_zeros(const at::Tensor& gradient, const at::Tensor& value);

// Throws Misuse unless tokens are [..., hidden] and experts int64 [..., routes] of the same leading shape.
void check_tokens(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options);
Communicator* comm_of(const ExchangeOptions& options, Context& context);  // null for one rank

// A dispatch or a combine. Between several ranks it has statistics: `bytes_sent` to other ranks, the sum over all ranks, forward
// and backward; `seconds` of a rank's thread, the mean over ranks. The counts of rows that all_to_all sends before the rows, 8
// bytes per expert, are left out.
class TokenExchange : public ExchangeLayer, public LayerExtras {
 public:
  explicit TokenExchange(ExchangeOptions options) : options_(std::move(options)) {}

  Stats report(const Stats& sums) const override;
  std::vector<std::string> axes() const override;
  bool needs_equal_batches() const override { return options_.padding && options_.ranks > 1; }

 protected:
  std::vector<StatInfo> stats() const;

  const ExchangeOptions options_;
};

class DispatchLayer : public TokenExchange {
 public:
  using TokenExchange::TokenExchange;

  Io io() const override;
  // Returns a sentence about the rows that plans assume; empty for one rank without capacity.
  std::string assumption() const override;
};

class CombineLayer : public TokenExchange {
 public:
  using TokenExchange::TokenExchange;

  Io io() const override;
  // Starts with zeros for missing rows. Returns no tensors if the dispatch before it was not completed.
  std::optional<Started> join(at::TensorList in, Context& context) override;

 protected:
  struct Tensors {
    at::Tensor rows;     // contiguous
    at::Tensor weights;  // as given
    at::Tensor shared;   // undefined unless options_.has_shared
    at::Tensor result;   // of the shape of `h`, not initialised
  };
  Tensors tensors_of(at::TensorList in) const;
};

// Returns the rows per expert if they are padded, else -1. experts: [samples, tokens, routes].
int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode);

// On device meta: the shapes of a dispatch with as many rows as options.capacity or options.planned_rows say, and of the
// backwards. They note the bytes that are sent, of which an equal part stays on this rank.
ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options,
                                        Context& context);
ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const ExchangeOptions& options,
                                        Context& context);

}  // namespace zt::moe
