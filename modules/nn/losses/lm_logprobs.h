// The log-probabilities of labels, for losses on them.
#pragma once

#include <memory>

#include "lm_head.h"

namespace zt::nn {

struct LmLogprobsOptions : LmHeadOptions {
  double temperature = 1;  // divides the logits
  bool entropy = false;    // output the entropies, too
};

// Makes the layer nn.lm_logprobs, whose parameters are those of nn.lm_loss.
std::shared_ptr<Layer> lm_logprobs_layer(const LmLogprobsOptions& options);

}  // namespace zt::nn
