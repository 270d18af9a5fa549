// Attention on a GPU, which is ATen's.
#pragma once

#include "cpu/attention_core.h"

namespace zt::nn {

// As attention_core, written with ATen's operators and their gradients, on any device. Without segments and dropout it is ATen's
// scaled_dot_product_attention, causal or not, which chooses its fused kernel; with segments it is given a mask [B, 1, T, T];
// dropout of the weights is a byte mask of ours, which no fused kernel takes, so the weights [B, H, T, T] are held.
at::Tensor attention_by_aten(const at::Tensor& qkv, const AttentionInputs& inputs);

}  // namespace zt::nn
