// Functions that the layers of both dispatchers share.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "exchange/exchange.h"

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
std::vector<std::string> axes_of(const ExchangeOptions& options);

// Returns what results show of the statistics of dispatch_io and combine_io.
Stats exchange_report(const Stats& sums);
// Returns a sentence about the rows that plans assume; empty for one rank without capacity.
std::string rows_assumption(const ExchangeOptions& options);

// Returns the rows per expert if they are padded, else -1. experts: [samples, tokens, routes].
int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode);

// On device meta: the shapes of a dispatch with as many rows as options.capacity or options.planned_rows say, and of the
// backwards. They note the bytes that are sent, of which an equal part stays on this rank.
ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options,
                                        Context& context);
ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const ExchangeOptions& options,
                                        Context& context);

}  // namespace zt::moe
