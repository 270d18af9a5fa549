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

// Returns the rows per expert if they are padded, else -1. experts: [samples, tokens, routes].
int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode);

// On device meta: the shapes of a dispatch if the routing is balanced, times options.planned_rows, and of the backwards.
ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const ExchangeOptions& options,
                                        Mode mode);
ExchangeLayer::Backward planned_combine(at::TensorList in);

}  // namespace zt::moe
