// Compares whole layers in 16-bit dtypes with the same layers in float64 on the same numbers. golden_test.cpp compares the
// float64 layers with PyTorch.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "nn/cpu/narrow.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

struct NarrowCase {
  std::string name;
  std::function<test::Subject()> make;
  // Number of tensors stored in 16 bits on the longest path through forward and backward.
  int roundings;
};

void PrintTo(const NarrowCase& c, std::ostream* out) {
  *out << c.name;
}

template <auto make>
NarrowCase narrow_case(const std::string& name, int roundings, Table options) {
  return {name, [options] { return test::subject(make(options)); }, roundings};
}

// A matmul stores its result; its backward stores the gradients of the input and, before the sink, of the weight. A norm of heads
// stores its result, and its backward a gradient. A block stores
// norm, qkv, rotated qkv, weights and result of the attention, sum, norm, two tensors of the mlp, and sum. Its backward stores as
// many gradients, except those of the two sums: the norms' backward adds them before it stores.
std::vector<NarrowCase> narrow_cases() {
  const Table grouped{{"hidden", 18}, {"heads", 3}, {"kv_heads", 1}, {"rotary", true}, {"std", 0.3}};
  Table normed = grouped;
  normed["qk_norm"] = true;
  const Table llama{{"layers", 2}, {"hidden", 18}, {"heads", 3},       {"kv_heads", 1},
                    {"ffn", 13},   {"vocab", 23},  {"family", "llama"}};
  return {
      narrow_case<make_linear>("linear", 2, {{"in", 9}, {"out", 5}}),
      narrow_case<make_mlp>("mlp_gelu_tanh", 6, {{"hidden", 9}, {"ffn", 19}, {"std", 0.3}}),
      narrow_case<make_mlp>("mlp_swiglu", 6, {{"hidden", 9}, {"ffn", 19}, {"activation", "swiglu"}, {"std", 0.3}}),
      narrow_case<make_mlp>("mlp_relu", 6, {{"hidden", 9}, {"ffn", 19}, {"activation", "relu"}, {"std", 0.3}}),
      narrow_case<make_attention>("attention", 10, {{"hidden", 15}, {"heads", 3}, {"std", 0.3}}),
      narrow_case<make_attention>("attention_grouped", 10, grouped),
      narrow_case<make_attention>("attention_grouped_qk_norm", 12, normed),
      narrow_case<make_lm_loss>("lm_loss", 6, {{"vocab", 23}, {"hidden", 15}, {"std", 0.3}}),
      narrow_case<make_block>("block", 18, {{"hidden", 15}, {"heads", 3}, {"dropout", 0.2}}),
      narrow_case<make_gpt>("gpt2", 44, {{"layers", 2}, {"hidden", 15}, {"heads", 3}, {"vocab", 23}, {"seq", 7}}),
      narrow_case<make_gpt>("llama", 44, llama),
  };
}

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

class NarrowLayer : public testing::TestWithParam<std::tuple<NarrowCase, at::ScalarType>> {
 protected:
  static std::vector<at::Tensor> inputs(const std::string& name) {
    if (name == "gpt2" || name == "llama") return {};
    const int64_t columns = name == "linear" || name.starts_with("mlp") ? 9 : name.starts_with("attention_grouped") ? 18 : 15;
    return {random({2, 7, columns}, 1)};
  }
};

// To first order, each rounding adds an error of one unit relative to the size of its tensor, and later operations do not amplify
// it. This holds for random numbers. Sums of regular numbers may be far smaller than their terms.
TEST_P(NarrowLayer, IsAsAccurateAsItsRoundings) {
  const auto& [subject_case, dtype] = GetParam();
  const test::Subject subject = subject_case.make();
  test::SinkContext narrow(at::kFloat), wide(at::kDouble);
  for (auto* context : {&narrow, &wide}) {
    context->fields["tokens"] = (at::arange(14, at::kLong) * 5).remainder(23).view({2, 7});
    context->fields["labels"] = (at::arange(14, at::kLong) * 7).remainder(23).view({2, 7});
  }
  std::vector<at::Tensor> in = inputs(subject_case.name);
  for (auto& x : in) x = x.to(dtype);
  test::initialise(subject, 5, dtype);
  test::Tensors values;
  for (const auto& param : subject.params) values[param->name] = test::values_of(*param).detach().to(at::kDouble);
  const bool has_loss = subject_case.name == "lm_loss" || in.empty();
  const auto cot = [&](const std::vector<at::Tensor>& x) {
    if (has_loss) return at::Tensor();
    const std::vector<int64_t> shape = subject.forward(x, narrow)[0].sizes().vec();
    return random(shape, 2).to(x[0].scalar_type());
  };
  const at::Tensor seed = cot(in);
  const test::Result got = test::run(subject, in, narrow, seed);
  for (const auto& param : subject.params) test::values_of(*param) = values[param->name].set_requires_grad(true);
  for (auto& x : in) x = x.to(at::kDouble);
  const test::Result exact = test::run(subject, in, wide, seed.defined() ? seed.to(at::kDouble) : seed);

  const double bound = subject_case.roundings * test::unit_of(dtype);
  if (exact.out.defined()) {
    EXPECT_LE(test::distance(got.out, exact.out), bound);
  }
  if (exact.loss.defined()) {
    EXPECT_LE(test::distance(got.loss, exact.loss), bound);
  }
  if (!in.empty()) {
    EXPECT_LE(test::distance(got.input_grads[0], exact.input_grads[0]), bound);
  }
  for (const auto& [name, gradient] : exact.grads) {
    EXPECT_EQ(got.grads.at(name).scalar_type(), at::kFloat) << name;
    EXPECT_LE(test::distance(got.grads.at(name), gradient), bound) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Nn, NarrowLayer,
                         testing::Combine(testing::ValuesIn(narrow_cases()), testing::Values(at::kBFloat16, at::kHalf)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" + c10::toString(std::get<1>(info.param));
                         });

// Layers in bfloat16 take a batch field in float32; its gradient is float32.
TEST(NarrowInput, IsConverted) {
  for (const auto& layer : {make_mlp(Table{{"hidden", 6}, {"ffn", 5}}), make_layernorm(Table{{"hidden", 6}}),
                            make_rmsnorm(Table{{"hidden", 6}}), make_block(Table{{"hidden", 6}, {"heads", 2}})}) {
    const auto subject = test::initialised(layer, at::kBFloat16);
    test::FakeContext context, same;
    const at::Tensor x = at::randn({1, 3, 6}), cot = at::ones({1, 3, 6}, at::kBFloat16);
    const test::Result got = test::run(subject, {x}, context, cot);
    const test::Result expected = test::run(subject, {x.to(at::kBFloat16)}, same, cot);
    EXPECT_TRUE(at::equal(got.out, expected.out)) << layer->kind();
    EXPECT_TRUE(at::equal(got.input_grads[0], expected.input_grads[0].to(at::kFloat))) << layer->kind();
    EXPECT_NE(test::misuse_of([&] {
                subject.forward({at::ones({1, 3, 6}, at::kLong)}, context);
              }).find("takes floating-point numbers"),
              std::string::npos)
        << layer->kind();
  }
}

}  // namespace
}  // namespace zt::nn
