// How tokens reach the ranks of their experts and come back. To add a dispatcher, see README.md.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exchange/exchange.h"

namespace zt::moe {

// The outputs of the layer `dispatch` (exchange.h), and the way back of a gradient.
struct Dispatched {
  at::Tensor rows, group_rows, places, traffic;
  Work work;  // `rows` have their values after it
  // Starts to sum the gradient of `rows`, contiguous, into that of the tokens: `of_tokens` [tokens, hidden].
  std::function<Work(const at::Tensor& of_tokens, const at::Tensor& of_rows)> backward;
};

// The inputs of the layer `combine`.
struct Returning {
  at::Tensor rows;             // contiguous
  at::Tensor weights;          // [..., routes]
  at::Tensor places, traffic;  // those of Dispatched
  at::Tensor shared;           // undefined if nothing is added
};
struct Combined {
  Work work;
  struct Gradients {
    at::Tensor rows, weights;  // complete after `work`
    Work work;
  };
  std::function<Gradients(const at::Tensor& of_sums)> backward;  // of_sums [tokens, hidden], contiguous
};

// The sizes of what `combine` takes.
struct ReturningSizes {
  int64_t rows, tokens, routes;
};

// What a plan needs of an exchange, forward and backward.
struct PlannedExchange {
  int64_t forward_bytes, backward_bytes;  // that a rank sends to others
  std::vector<int64_t> buffers;           // the rows of each tensor that lives while rows are under way
  int64_t kept;                           // the rows that the backward holds beside inputs and outputs
};
// The rows that a rank is planned to send, and those of its experts.
struct PlannedRows {
  int64_t sent, received;
};

// Each layer `dispatch` or `combine` has one, which serves any number of trainers and threads. It lives as long as the layer, so
// what it returns may refer to it.
class Dispatcher {
 public:
  explicit Dispatcher(ExchangeOptions options) : options_(std::move(options)) {}
  virtual ~Dispatcher() = default;
  const ExchangeOptions& options() const { return options_; }

  // Starts to send tokens [..., hidden] to the ranks of their experts, int64 [..., routes].
  virtual Dispatched dispatch(const at::Tensor& tokens, const at::Tensor& experts, Context& context) const = 0;
  // Starts to bring rows back and to write each token's sum to `sums` [tokens, hidden].
  virtual Combined combine(const at::Tensor& sums, const Returning& returning, Context& context) const = 0;
  // Takes part in the dispatch of the other ranks after this rank's step has failed: see ExchangeLayer::join.
  virtual std::optional<ExchangeLayer::Started> join(Context& context) const = 0;
  // Returns the sizes that the dispatch expects back.
  virtual ReturningSizes sizes_of(const at::Tensor& places, const at::Tensor& traffic) const = 0;

  // Returns the kind of a layer that uses it, for reports. layer: "dispatch" or "combine".
  virtual std::string kind_of(const std::string& layer) const { return layer; }
  virtual Pattern pattern() const = 0;
  // Returns the number of ranks whose tokens this rank brings into order.
  virtual int64_t ordered_ranks() const { return 1; }
  virtual PlannedExchange plan_dispatch(const PlannedRows& planned, const at::Tensor& tokens,
                                        const at::Tensor& experts) const = 0;
  virtual PlannedExchange plan_combine(const PlannedRows& planned, const at::Tensor& rows, const at::Tensor& weights) const = 0;

 protected:
  void note_sent(int64_t bytes, Context& context) const { context.sent(options_.axis, bytes, pattern()); }

  const ExchangeOptions options_;
};

// Returns the words for ExchangeOptions::dispatcher.
std::vector<std::string> dispatcher_names();
// Returns the dispatcher that the options name. One rank has all tokens already: there every kind is the same. Throws Misuse if
// the named dispatcher cannot do what the other options ask.
std::shared_ptr<const Dispatcher> make_dispatcher(const ExchangeOptions& options);
std::shared_ptr<const Dispatcher> make_all_to_all(const ExchangeOptions& options);
std::shared_ptr<const Dispatcher> make_all_gather(const ExchangeOptions& options);

// Returns the experts [..., routes] as int64 [tokens, routes] in host memory: the one read per layer that waits for a device.
at::Tensor routes_on_host(const at::Tensor& experts);
// Returns the most rows that an expert gets of one rank within the capacity. experts: [samples, tokens, routes].
int64_t room_of_expert(const at::Tensor& experts, const CapacityOptions& capacity, const ExchangeOptions& options, Mode mode);
// Returns the rows per expert if they are padded, else -1.
int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode);

// Dispatches and combines on device meta, with as many rows as ExchangeOptions::capacity or planned_rows say. They hold the
// memory that the real ones need, and note the bytes that are sent.
ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const Dispatcher& dispatcher,
                                        Context& context);
ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const Dispatcher& dispatcher,
                                        Context& context);

}  // namespace zt::moe
