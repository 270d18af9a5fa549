// Compares forward and gradients of every layer with a golden file of PyTorch (tests/oracle/make_nn.py), in fp64 and fp32.
#include "support/golden.h"

#include <gtest/gtest.h>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using test::Tensors;
using Table = Value::Table;

struct GoldenCase {
  std::string name;
  std::function<test::Subject()> make;
};

template <auto make>
GoldenCase layer_case(const std::string& name, Table options) {
  return {name, [options] { return test::subject(make(options)); }};
}

// A grouped_mlp that reads the number of rows of each group from the batch.
GoldenCase grouped_case(const std::string& activation, bool bias) {
  const Table options{{"groups", 3}, {"hidden", 9}, {"ffn", 13}, {"activation", activation}, {"bias", bias}};
  return {"grouped_mlp_" + activation, [options] {
            const auto layer = make_grouped_mlp(options);
            return test::Subject{[layer](at::TensorList in, Context& context) {
                                   return layer->forward({in[0], context.batch("group_rows")}, context);
                                 },
                                 layer->params()};
          }};
}

Table attention(int hidden, int heads, Table more) {
  more.insert({{"hidden", hidden}, {"heads", heads}});
  return more;
}

const Table kLlamaBlock{{"hidden", 18},      {"heads", 3},     {"kv_heads", 1}, {"ffn", 13},
                        {"norm", "rmsnorm"}, {"rotary", true}, {"bias", false}, {"activation", "swiglu"}};
const Table kGpt2{{"layers", 2}, {"hidden", 15}, {"heads", 3}, {"vocab", 23}, {"seq", 7}};
const Table kLlama{{"layers", 2}, {"hidden", 18}, {"heads", 3}, {"kv_heads", 1}, {"ffn", 13}, {"vocab", 23}, {"family", "llama"}};

Table with_qk_norm(Table options) {
  options["qk_norm"] = true;
  return options;
}

void PrintTo(const GoldenCase& c, std::ostream* out) {
  *out << c.name;
}

std::vector<GoldenCase> cases() {
  std::vector<GoldenCase> all{
      layer_case<make_linear>("linear", {{"in", 9}, {"out", 5}}),
      layer_case<make_linear>("linear_no_bias", {{"in", 9}, {"out", 5}, {"bias", false}}),
      layer_case<make_layernorm>("layernorm", {{"hidden", 37}}),
      layer_case<make_rmsnorm>("rmsnorm", {{"hidden", 37}}),
      layer_case<make_embedding>("embedding", {{"vocab", 11}, {"hidden", 6}, {"positions", 9}}),
      layer_case<make_embedding>("embedding_positions", {{"vocab", 11}, {"hidden", 6}, {"positions", 9}}),
      layer_case<make_attention>("attention", attention(15, 3, {})),
      layer_case<make_attention>("attention_rotary_grouped",
                                 attention(18, 4, {{"kv_heads", 2}, {"head_dim", 6}, {"rotary", true}, {"bias", false}})),
      layer_case<make_attention>("attention_bidirectional", attention(15, 3, {{"causal", false}})),
      layer_case<make_attention>("attention_packed",
                                 attention(18, 3, {{"kv_heads", 1}, {"rotary", true}, {"rope_base", 500}, {"bias", false}})),
      layer_case<make_attention>("attention_packed_bidirectional", attention(15, 3, {{"causal", false}})),
      layer_case<make_attention>(
          "attention_qk_norm",
          with_qk_norm(attention(18, 4, {{"kv_heads", 2}, {"head_dim", 6}, {"rotary", true}, {"bias", false}}))),
      layer_case<make_attention>("attention_qk_norm_eps", with_qk_norm(attention(15, 3, {{"qk_norm_eps", 0.1}}))),
      layer_case<make_cross_entropy>("cross_entropy", {}),
      layer_case<make_lm_loss>("lm_loss_none", {{"vocab", 21}, {"hidden", 9}, {"norm", "none"}}),
      layer_case<make_lm_loss>("lm_loss_layernorm", {{"vocab", 21}, {"hidden", 9}}),
      layer_case<make_lm_loss>("lm_loss_rmsnorm", {{"vocab", 21}, {"hidden", 9}, {"norm", "rmsnorm"}, {"bias", true}}),
      layer_case<make_block>("block_gpt2", {{"hidden", 15}, {"heads", 3}}),
      layer_case<make_block>("block_llama", kLlamaBlock),
      layer_case<make_gpt>("model_gpt2", kGpt2),
      layer_case<make_gpt>("model_llama", kLlama),
      layer_case<make_gpt>("model_qk_norm", with_qk_norm(kLlama)),
      grouped_case("swiglu", false),
      grouped_case("gelu", true),
  };
  for (const std::string activation : {"gelu", "gelu_tanh", "relu", "swiglu"}) {
    all.push_back(layer_case<make_mlp>("mlp_" + activation, {{"hidden", 9}, {"ffn", 19}, {"activation", activation}}));
  }
  return all;
}

// Returns the tensors whose key starts with `prefix`, for example CASE/KIND/, by the rest of the key.
Tensors part(const Tensors& all, const std::string& prefix) {
  Tensors found;
  for (const auto& [key, tensor] : all) {
    if (key.starts_with(prefix)) found[key.substr(prefix.size())] = tensor;
  }
  return found;
}

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  void check(at::ScalarType dtype, double tolerance) {
    static const Tensors all = test::golden("nn");
    const Tensors tensors = part(all, GetParam().name + "/");
    const test::Subject subject = GetParam().make();
    test::set_values(subject, part(tensors, "param/"), dtype);
    test::FakeContext context;
    context.fields = part(tensors, "batch/");
    std::vector<at::Tensor> inputs;
    for (const auto& [name, input] : part(tensors, "in/")) inputs.push_back(input.to(dtype));
    at::Tensor cot;
    if (tensors.contains("cot")) cot = tensors.at("cot").to(dtype);
    const test::Result result = test::run(subject, inputs, context, cot);

    Tensors got = result.grads;
    if (result.out.defined()) got["out"] = result.out;
    if (result.loss.defined()) got["loss"] = result.loss;
    if (!inputs.empty()) got["grad_in/h"] = result.input_grads[0];
    Tensors wanted = part(tensors, "grad/");
    for (const std::string name : {"out", "loss", "grad_in/h"}) {
      if (tensors.contains(name)) wanted[name] = tensors.at(name);
    }
    for (const auto& [name, expected] : wanted) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_LE(test::distance(got.at(name), expected), tolerance) << name;
    }
  }
};

TEST_P(Golden, Fp64) {
  check(at::kDouble, 1e-12);
}

// fp32: each value depends on a chain of at most 16 matmuls (two blocks, forward and backward), each a sum of at most 64 terms.
// The roundings of the terms are independent, so the relative error of a sum grows with the root of its length: 8 * 2^-24.
TEST_P(Golden, Fp32) {
  check(at::kFloat, 16 * 8 * 0x1p-24);
}

INSTANTIATE_TEST_SUITE_P(Nn, Golden, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace zt::nn
