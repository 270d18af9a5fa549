// The router: it assigns each token to experts.
//
// N. Shazeer et al.: Outrageously large neural networks. ICLR 2017. W. Fedus et al.: Switch transformers. JMLR 2022.
// DeepSeek-AI: DeepSeek-V3 technical report. 2024 (sigmoid scores, groups, the bias without a loss).
#pragma once

#include <memory>

#include "routing/router_options.h"
#include "zt/model/layer.h"

namespace zt::moe {

// Returns the layer. It reads `h` [samples, tokens, hidden] and outputs
//   route_weights  [samples, tokens, routes] float32 (float64 for float64), through which gradients flow
//   route_experts  int64 [samples, tokens, routes] in host memory; -1: an empty route
// with routes = top_k, or experts if experts choose. Parameters: weight [experts, hidden]; with noise "noisy_top_k" also noise
// [experts, hidden]. Buffer: bias [experts], if the load is evened out by a bias. Scores are computed in float32 at least.
//
// Loss terms: balance and z_loss, per sample. Statistics: see routing_report. A step whose logits are not finite is an error,
// or is skipped, as one whose loss is not finite; the message names the layer, the sample and the rank.
//
// A recompute uses the experts that the first forward has chosen.
std::shared_ptr<Layer> make_router(const RouterOptions& options);

}  // namespace zt::moe
