// Attention on a GPU, by ATen.
#pragma once

#include "attention_core.h"

namespace zt::nn {

// Computes the same as attention_core with ATen's operators and their gradients, on any device. Without dropout it calls ATen's
// scaled_dot_product_attention, which chooses a fused kernel; with segments or a window it passes a mask [B, 1, T, T]. Our dropout mask does
// not fit into fused kernels, so with dropout the weights [B, H, T, T] are held in memory.
at::Tensor attention_by_aten(const at::Tensor& qkv, const AttentionInputs& inputs);

}  // namespace zt::nn
