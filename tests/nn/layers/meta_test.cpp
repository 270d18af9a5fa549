// Tests that layers on the device meta, where planning runs them (`ztoolkit plan`), give the same shapes and dtypes as with
// values. A meta tensor has no memory: a loop that accessed an element would crash the test, and LibTorch throws if its values
// are read.
#include <gtest/gtest.h>

#include "layers/layers.h"
#include "nn/cpu/narrow.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

struct MetaCase {
  std::string name;
  std::function<test::Subject()> make;
  std::vector<std::string> fields{"tokens", "labels"};
};

void PrintTo(const MetaCase& c, std::ostream* out) {
  *out << c.name;
}

template <auto make>
MetaCase meta_case(const std::string& name, Table options, std::vector<std::string> fields = {"tokens", "labels"}) {
  return {name, [options] { return test::subject(make(options)); }, std::move(fields)};
}

std::vector<MetaCase> meta_cases() {
  std::vector<MetaCase> all{
      meta_case<make_linear>("linear", {{"in", 12}, {"out", 12}}),
      meta_case<make_layernorm>("layernorm", {{"hidden", 12}}),
      meta_case<make_layernorm>("layernorm_no_bias", {{"hidden", 12}, {"bias", false}}),
      meta_case<make_rmsnorm>("rmsnorm", {{"hidden", 12}}),
      meta_case<make_dropout>("dropout", {{"p", 0.3}}),
      meta_case<make_embedding>("embedding", {{"vocab", 23}, {"hidden", 12}}),
      meta_case<make_embedding>("embedding_dropout", {{"vocab", 23}, {"hidden", 12}, {"positions", 9}, {"dropout", 0.2}}),
      meta_case<make_embedding>("embedding_positions", {{"vocab", 23}, {"hidden", 12}, {"positions", 9}},
                                {"tokens", "positions"}),
      meta_case<make_cross_entropy>("cross_entropy", {}),
      meta_case<make_lm_loss>("lm_loss", {{"vocab", 23}, {"hidden", 12}}),
      meta_case<make_lm_loss>("lm_loss_bare", {{"vocab", 23}, {"hidden", 12}, {"norm", "none"}, {"bias", true}}),
      meta_case<make_lm_loss>("lm_loss_logits", {{"vocab", 23}, {"hidden", 12}, {"norm", "rmsnorm"}, {"loss", false}}),
      meta_case<make_lm_loss>("lm_loss_tile", {{"vocab", 23}, {"hidden", 12}, {"bias", true}, {"tile", 3}}),
      meta_case<make_mlp>("mlp_tile", {{"hidden", 12}, {"ffn", 7}, {"tile", 3}}),
  };
  for (const std::string activation : {"gelu", "gelu_tanh", "relu", "swiglu"}) {
    all.push_back(meta_case<make_mlp>("mlp_" + activation, {{"hidden", 12}, {"ffn", 7}, {"activation", activation}}));
  }
  for (const bool rotary : {false, true}) {
    const Table options{{"hidden", 12}, {"heads", 3}, {"kv_heads", rotary ? 1 : 3}, {"rotary", rotary}, {"dropout", 0.2}};
    Table normed = options;
    normed["qk_norm"] = true;
    all.push_back(meta_case<make_attention>(rotary ? "attention_rotary" : "attention", options));
    all.push_back(meta_case<make_attention>(rotary ? "attention_rotary_qk_norm" : "attention_qk_norm", normed));
    all.push_back(meta_case<make_block>(rotary ? "block_rotary" : "block", options));
  }
  all.push_back(
      meta_case<make_attention>("attention_qkv_bias", {{"hidden", 12}, {"heads", 2}, {"bias", false}, {"qkv_bias", true}}));
  all.push_back(meta_case<make_attention>("attention_segments", {{"hidden", 12}, {"heads", 2}}, {"segments", "positions"}));
  for (const std::string family : {"gpt2", "llama"}) {
    const Table options{{"layers", 2}, {"hidden", 12}, {"heads", 2}, {"vocab", 23}, {"seq", 9}, {"ffn", 20}, {"family", family}};
    all.push_back({"model_" + family, [options] { return test::subject(make_gpt(options)); }});
  }
  return all;
}

// Returns the results of a run by name.
test::Tensors run_on(const MetaCase& subject_case, at::ScalarType dtype, at::Device device) {
  const test::Subject subject = subject_case.make();
  test::initialise(subject, 1, dtype);
  for (const auto& param : subject.params)
    test::values_of(*param) = test::values_of(*param).detach().to(device).set_requires_grad(true);
  test::SinkContext context(at::kFloat);
  for (const auto& name : subject_case.fields) {
    context.fields[name] = at::arange(10, at::kLong).view({2, 5}).remainder(5).to(device);
  }
  std::vector<at::Tensor> in;
  const bool reads_tokens = subject_case.name.starts_with("embedding") || subject_case.name.starts_with("model");
  if (!reads_tokens) in.push_back(at::ones({2, 5, 12}, dtype).to(device));
  const auto probe = subject.forward(in, context);
  context.losses.clear();
  const bool has_out = !probe.empty() && probe[0].defined();
  const test::Result result = test::run(subject, in, context, has_out ? at::ones_like(probe[0]) : at::Tensor());
  test::Tensors all = result.grads;
  if (has_out) all["out"] = result.out;
  if (result.loss.defined()) all["loss"] = result.loss;
  if (!in.empty()) all["input"] = result.input_grads[0];
  return all;
}

class Meta : public testing::TestWithParam<MetaCase> {};

TEST_P(Meta, GivesTheShapesOfARealRun) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const test::Tensors real = run_on(GetParam(), dtype, at::kCPU), meta = run_on(GetParam(), dtype, at::kMeta);
    ASSERT_EQ(meta.size(), real.size());
    for (const auto& [name, tensor] : real) {
      ASSERT_TRUE(meta.contains(name)) << name;
      EXPECT_TRUE(meta.at(name).is_meta()) << name;
      EXPECT_EQ(meta.at(name).sizes(), tensor.sizes()) << name;
      EXPECT_EQ(meta.at(name).scalar_type(), tensor.scalar_type()) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nn, Meta, testing::ValuesIn(meta_cases()), [](const auto& info) { return info.param.name; });

TEST(MetaCount, AllLabelsAreValid) {
  const auto layer = make_lm_loss(Table{{"vocab", 5}, {"hidden", 3}});
  const at::Tensor labels = at::empty({2, 3}, at::TensorOptions(at::kLong).device(at::kMeta));
  const Counts counts = layer->count([&](const std::string&) { return labels; });
  EXPECT_EQ(counts.tokens, 6);
  EXPECT_EQ(counts.samples, 0);  // says nothing: the rows are the samples
}

}  // namespace
}  // namespace zt::nn
