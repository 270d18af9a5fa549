// Compares the attention used on a GPU (ATen's operators) with our tiled attention, both on the CPU in float64.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "attention/attention_cuda.h"
#include "cuda_bounds.h"

namespace zt::nn {
namespace {

struct Case {
  std::string name;
  bool causal = true, rotary = false, segments = false, dropout = false;
  int64_t kv_heads = 4;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class CudaAttention : public testing::TestWithParam<Case> {};

TEST_P(CudaAttention, EqualsTiledAttention) {
  const Case& c = GetParam();
  constexpr int64_t kSamples = 2, kPlaces = 9, kDim = 6;
  AttentionInputs inputs;
  inputs.shape = {4, c.kv_heads, kDim};
  inputs.sees.causal = c.causal;
  if (c.rotary) inputs.angles = Rotary(kDim, 100).angles(at::arange(kPlaces), at::kDouble);
  if (c.segments) inputs.segments = at::arange(kSamples * kPlaces, at::kLong).view({kSamples, kPlaces}).div(4, "floor");
  if (c.dropout) inputs.dropout.emplace(0.2, test::FakeContext(), 0);
  const at::Tensor qkv = test::wide_leaf(test::some({kSamples, kPlaces, inputs.shape.columns()}, at::kDouble, 0.4));
  const at::Tensor dout = test::some({kSamples, kPlaces, 4 * kDim}, at::kDouble, 0.5);
  const at::Tensor got = attention_by_aten(qkv.clone(), inputs), expected = attention_core(qkv.clone(), inputs);
  EXPECT_LE(test::times_allowed(got.detach(), expected.detach()), 1);
  const at::Tensor dqkv = torch::autograd::grad({got}, {qkv}, {dout})[0],
                   exact = torch::autograd::grad({expected}, {qkv}, {dout})[0];
  EXPECT_LE(test::times_allowed(dqkv, exact), 1);
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaAttention,
                         testing::Values(Case{"causal"}, Case{"whole", false}, Case{"rotary", true, true},
                                         Case{"grouped", true, true, false, false, 2}, Case{"segments", true, false, true},
                                         Case{"segments_whole", false, true, true, false, 1},
                                         Case{"dropout", true, false, false, true},
                                         Case{"dropout_segments", false, true, true, true, 2}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zt::nn
