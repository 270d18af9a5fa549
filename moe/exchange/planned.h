// Dispatches and combines on device meta, with as many rows as ExchangeOptions::capacity or planned_rows say. They hold the
// memory that the real ones need, and note the bytes that are sent.
#pragma once

#include "exchange/dispatcher.h"

namespace zt::moe {

ExchangeLayer::Started planned_dispatch(const at::Tensor& tokens, const at::Tensor& experts, const Dispatcher& dispatcher,
                                        Context& context);
ExchangeLayer::Backward planned_combine(at::TensorList in, const at::Tensor& result, const Dispatcher& dispatcher,
                                        Context& context);

}  // namespace zt::moe
