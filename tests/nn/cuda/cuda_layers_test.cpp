// Compares layers on a GPU, forward and backward, with the same layers on the CPU in float64 on the same numbers; other tests
// compare these with PyTorch. Compares the fused loops with ATen in float64 on the same GPU.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "cuda/device_norm.h"
#include "cuda_bounds.h"
#include "cuda_team.h"
#include "layers/layers.h"
#include "parts/activation.h"
#include "support/cuda_device.h"
#include "zt/base/rows.h"

namespace zt::nn {
namespace {

using Table = Value::Table;
using test::some;
using test::times_allowed;
using test::wide_leaf;
using torch::autograd::grad;

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

// Sets the parameters to their initial values in `dtype`, converted to `as` on `device`.
void put_params(const test::Subject& subject, at::ScalarType dtype, at::ScalarType as, at::Device device) {
  test::initialise(subject, 5, dtype);
  for (const auto& param : subject.params)
    test::values_of(*param) = test::values_of(*param).detach().to(device, as).set_requires_grad(true);
}

// --- whole layers ---

struct Case {
  std::string name;
  std::function<test::Subject()> make;
  std::vector<int64_t> input;  // shape of the input; empty if the layer reads tokens
  int roundings;               // number of tensors on the longest path through forward and backward
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

template <auto make>
Case layer_case(const std::string& name, std::vector<int64_t> input, int roundings, Table options) {
  return {name, [options] { return test::subject(make(options)); }, std::move(input), roundings};
}

// A grouped_mlp whose groups have 3, 0 and 4 rows. Without biases and with widths that are multiples of 8, it uses a grouped
// GEMM.
Case grouped_case(const std::string& activation, bool bias, int64_t hidden, int64_t ffn) {
  const Table options{{"groups", 3}, {"hidden", hidden}, {"ffn", ffn}, {"activation", activation}, {"bias", bias}, {"std", 0.3}};
  return {fmt::format("grouped_mlp_{}_{}", activation, hidden),
          [options] {
            const auto layer = make_grouped_mlp(options);
            const at::Tensor group_rows = test::longs({3, 0, 4}, {3});
            return test::Subject{[=](at::TensorList in, Context& context) {
                                   return layer->forward({in[0], group_rows}, context);
                                 },
                                 layer->params()};
          },
          {7, hidden},
          6};
}

std::vector<Case> cases() {
  const Table grouped{{"hidden", 18}, {"heads", 3}, {"kv_heads", 1}, {"rotary", true}, {"std", 0.3}};
  Table normed = grouped;
  normed["qk_norm"] = true;
  const Table dropping{{"hidden", 15}, {"heads", 3}, {"dropout", 0.2}, {"std", 0.3}};
  const Table llama{{"layers", 2}, {"hidden", 18}, {"heads", 3},       {"kv_heads", 1},
                    {"ffn", 13},   {"vocab", 23},  {"family", "llama"}};
  return {
      layer_case<make_linear>("linear", {2, 7, 9}, 2, {{"in", 9}, {"out", 5}}),
      layer_case<make_layernorm>("layernorm", {3, 67, 333}, 2, {{"hidden", 333}}),
      layer_case<make_layernorm>("layernorm_no_bias", {3, 67, 64}, 2, {{"hidden", 64}, {"bias", false}}),
      layer_case<make_rmsnorm>("rmsnorm", {1, 1100, 65}, 2, {{"hidden", 65}}),
      layer_case<make_dropout>("dropout", {3, 5, 4099}, 2, {{"p", 0.3}}),
      layer_case<make_mlp>("mlp_gelu_tanh", {2, 7, 9}, 6, {{"hidden", 9}, {"ffn", 19}, {"std", 0.3}}),
      layer_case<make_mlp>("mlp_swiglu", {2, 7, 9}, 6, {{"hidden", 9}, {"ffn", 19}, {"activation", "swiglu"}, {"std", 0.3}}),
      grouped_case("swiglu", false, 9, 19),
      grouped_case("swiglu", false, 16, 24),
      grouped_case("gelu_tanh", true, 9, 19),
      layer_case<make_attention>("attention", {2, 7, 15}, 10, {{"hidden", 15}, {"heads", 3}, {"std", 0.3}}),
      layer_case<make_attention>("attention_grouped", {2, 7, 18}, 10, grouped),
      layer_case<make_attention>("attention_qk_norm", {2, 7, 18}, 12, normed),
      layer_case<make_attention>("attention_dropout", {2, 7, 15}, 12, dropping),
      layer_case<make_cross_entropy>("cross_entropy", {2, 7, 1023}, 2, {}),
      layer_case<make_lm_loss>("lm_loss", {2, 7, 15}, 6, {{"vocab", 23}, {"hidden", 15}, {"std", 0.3}}),
      layer_case<make_lm_loss>("lm_loss_tile", {2, 7, 15}, 6, {{"vocab", 23}, {"hidden", 15}, {"std", 0.3}, {"tile", 4}}),
      layer_case<make_mlp>("mlp_tile", {2, 7, 9}, 6, {{"hidden", 9}, {"ffn", 19}, {"std", 0.3}, {"tile", 4}}),
      layer_case<make_embedding>("embedding", {}, 3, {{"vocab", 23}, {"hidden", 33}, {"positions", 9}}),
      layer_case<make_block>("block", {2, 7, 15}, 20, {{"hidden", 15}, {"heads", 3}, {"dropout", 0.2}}),
      layer_case<make_gpt>("gpt2", {}, 48, {{"layers", 2}, {"hidden", 15}, {"heads", 3}, {"vocab", 23}, {"seq", 7}}),
      layer_case<make_gpt>("llama", {}, 48, llama),
  };
}

class CudaLayer : public testing::TestWithParam<std::tuple<Case, at::ScalarType>> {
 protected:
  // Returns the layer's results for numbers rounded to `dtype`, computed in `as` on `device`. Batch fields stay on the CPU.
  static test::Result result(at::ScalarType dtype, at::ScalarType as, at::Device device) {
    const Case& c = std::get<0>(GetParam());
    const test::Subject subject = c.make();
    put_params(subject, dtype, as, device);
    test::SinkContext context(as == at::kDouble ? at::kDouble : at::kFloat);
    context.fields["tokens"] = (at::arange(14, at::kLong) * 5).remainder(23).view({2, 7});
    context.fields["labels"] = (at::arange(14, at::kLong) * 7).remainder(23).view({2, 7});
    if (c.name == "attention") context.fields["segments"] = test::longs({0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3}, {2, 7});
    std::vector<at::Tensor> in;
    if (!c.input.empty()) in.push_back(random(c.input, 1).to(dtype).to(device, as));
    const auto out = subject.forward(in, context);
    context.losses.clear();
    at::Tensor cot;
    if (!out.empty() && out[0].defined()) cot = random(out[0].sizes(), 2).to(dtype).to(device, as);
    test::Result all = test::run(subject, in, context, cot);
    for (auto& [name, gradient] : all.grads) gradient = gradient.cpu();
    return all;
  }
};

// To first order, each rounding adds an error of one unit relative to the size of its tensor. The bound of the arithmetic between
// two roundings is as in cuda_bounds.h.
TEST_P(CudaLayer, IsAsAccurateAsItsRoundings) {
  ZT_NEEDS_GPU();
  const auto& [layer, dtype] = GetParam();
  const test::Result got = result(dtype, dtype, at::kCUDA), exact = result(dtype, at::kDouble, at::kCPU);
  const double arithmetic = dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
  const double bound = layer.roundings * ((dtype == at::kDouble ? 0 : test::unit_of(dtype)) + 64 * arithmetic);
  if (exact.out.defined()) {
    EXPECT_LE(test::distance(got.out.cpu(), exact.out), bound);
  }
  if (exact.loss.defined()) {
    EXPECT_LE(test::distance(got.loss.cpu(), exact.loss), bound);
  }
  if (!layer.input.empty()) {
    EXPECT_LE(test::distance(got.input_grads[0].cpu(), exact.input_grads[0]), bound);
  }
  EXPECT_EQ(got.grads.size(), exact.grads.size());
  for (const auto& [name, gradient] : exact.grads) EXPECT_LE(test::distance(got.grads.at(name), gradient), bound) << name;
}

TEST_P(CudaLayer, GivesTheSameBitsTwice) {
  ZT_NEEDS_GPU();
  const auto& [layer, dtype] = GetParam();
  if (layer.name.starts_with("attention") || layer.name == "block" || layer.name == "gpt2" || layer.name == "llama") {
    GTEST_SKIP() << "attention on a GPU is ATen's, which guarantees this only with deterministic algorithms enabled";
  }
  const test::Result first = result(dtype, dtype, at::kCUDA), second = result(dtype, dtype, at::kCUDA);
  if (first.out.defined()) {
    EXPECT_TRUE(at::equal(first.out, second.out));
  }
  if (first.loss.defined()) {
    EXPECT_TRUE(at::equal(first.loss, second.loss));
  }
  for (size_t i = 0; i < first.input_grads.size(); ++i) EXPECT_TRUE(at::equal(first.input_grads[i], second.input_grads[i]));
  for (const auto& [name, gradient] : first.grads) EXPECT_TRUE(at::equal(gradient, second.grads.at(name))) << name;
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaLayer,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + c10::toString(std::get<1>(info.param));
                         });

// --- the fused loops, compared with ATen on the same GPU ---

class CudaLoops : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor made_up(at::IntArrayRef shape, double factor = 1) const { return some(shape, GetParam(), factor).to(at::kCUDA); }
};

TEST_P(CudaLoops, ActivationsMatchAten) {
  ZT_NEEDS_GPU();
  for (const Activation kind : {Activation::gelu_tanh, Activation::swiglu}) {
    for (const int64_t width : {1, 7, 64, 1031}) {
      const int64_t before = columns_before(kind, width);
      const at::Tensor pre = made_up({5, before}), bias = made_up({before}, 0.3), dy = made_up({5, width}, 0.1);
      const at::Tensor x = wide_leaf(pre), sum = x + bias.to(at::kDouble);
      const auto half = [&](int64_t i) { return sum.narrow(1, i * width, width); };
      const at::Tensor y = kind == Activation::swiglu ? at::silu(half(0)) * half(1) : at::gelu(sum, "tanh");
      const at::Tensor dx = grad({y}, {x}, {dy.to(at::kDouble)})[0];
      EXPECT_LE(times_allowed(activate(kind, pre, bias), y.detach(), 64, 16), 1) << width;
      const ActivationGradient got = activate_backward(kind, dy.clone(), pre, bias);
      EXPECT_LE(times_allowed(got.value, y.detach(), 64, 16), 1) << width;
      EXPECT_LE(times_allowed(got.pre, dx, 64, 0.3 * 4 * 1.13), 1) << width;
    }
  }
}

TEST_P(CudaLoops, CrossEntropyMatchesAten) {
  ZT_NEEDS_GPU();
  const at::Tensor logits = made_up({1, 6, 4099}, 3), labels = at::tensor({0, 4098, -100, 7, 8, 100}, at::kLong).view({1, 6});
  test::FakeContext context;
  context.fields["labels"] = labels;
  const test::Result got = test::run(test::subject(make_cross_entropy(Table{})), {logits}, context);
  const at::Tensor x = wide_leaf(logits);
  const at::Tensor loss = at::cross_entropy_loss(x.view({6, 4099}), labels.view({6}).cuda(), {}, at::Reduction::Sum);
  EXPECT_TRUE(got.loss.is_cuda());
  EXPECT_LE(times_allowed(got.input_grads[0], grad({loss}, {x})[0]), 1);
  const double eps = GetParam() == at::kDouble ? 0x1p-53 * loss.item<double>() : 0x1p-24;
  EXPECT_NEAR(got.loss.item<double>(), loss.item<double>(), 6 * 64 * eps);
}

// Additions, multiplications, divisions and roots round in the same way on CPU and GPU, and sums have the same order. So the GPU
// gives the bits of the emulation, which cuda_maths_test.cpp compares with ATen.
TEST_P(CudaLoops, NormsHaveTheBitsOfTheEmulation) {
  ZT_NEEDS_GPU();
  const int64_t rows = 37, width = 1031;
  const at::Tensor x = some({rows, width}, GetParam()) + 1, weight = some({width}, GetParam()),
                   bias = some({width}, GetParam(), 0.5);
  const auto subject = test::subject(make_layernorm(Table{{"hidden", width}}));
  test::set_values(subject, {{"weight", weight.cuda()}, {"bias", bias.cuda()}}, GetParam());
  test::FakeContext context;
  const at::Tensor got = subject.forward(std::vector<at::Tensor>{x.cuda()}, context)[0].detach().cpu(),
                   expected = at::empty_like(x);
  for_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    using W = kernels::Wide<T>;
    std::vector<W> mean(rows), reciprocal(rows);
    test::emulate(device::NormForward<T>{expected.data_ptr<T>(),
                                         {mean.data(), reciprocal.data()},
                                         x.const_data_ptr<T>(),
                                         weight.const_data_ptr<T>(),
                                         bias.const_data_ptr<T>(),
                                         1e-5,
                                         rows,
                                         width});
  });
  EXPECT_TRUE(at::equal(got, expected));
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaLoops, testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf), test::dtype_of);

TEST(CudaLabels, OutOfRangeAreNamed) {
  ZT_NEEDS_GPU();
  test::FakeContext context;
  context.fields["labels"] = test::longs({0, 9}, {1, 2}).cuda();
  const auto layer = make_cross_entropy(Table{});
  const std::string message = test::misuse_of([&] { layer->forward({at::zeros({1, 2, 5}).cuda()}, context); });
  EXPECT_NE(message.find("label 9 at sample 0, index 1"), std::string::npos) << message;
}

}  // namespace
}  // namespace zt::nn
