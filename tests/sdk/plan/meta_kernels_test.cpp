// Tests that operators without a kernel of LibTorch's for device meta give the shapes there that they give on the CPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

namespace zt {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Operator {
  std::string name;
  std::function<Tensors(const Tensors& x)> run;  // x: two of [4, 6], int64 [3], bool [4, 6], [2, 3, 9]
};

void PrintTo(const Operator& op, std::ostream* out) {
  *out << op.name;
}

const std::vector<Operator> kOperators{
    {"where",
     [](const Tensors& x) {
       return Tensors{at::where(x[3], x[0], x[1]), at::where(x[3], x[0], 0.5)};
     }},
    {"layer_norm", [](const Tensors& x) { return Tensors{at::layer_norm(x[0], {6}, x[1][0], x[1][1])}; }},
    {"index_select", [](const Tensors& x) { return Tensors{x[0].index_select(1, x[2])}; }},
    {"masked_fill", [](const Tensors& x) { return Tensors{x[0].masked_fill(x[3], -1)}; }},
    {"cumsum",
     [](const Tensors& x) {
       return Tensors{x[0].cumsum(1), x[0].cumprod(0), x[0].logcumsumexp(1)};
     }},
    {"sort",
     [](const Tensors& x) {
       return Tensors{std::get<0>(x[0].sort(1)), std::get<0>(x[0].topk(2, 1)), std::get<1>(x[0].sort(1))};
     }},
    {"embedding", [](const Tensors& x) { return Tensors{at::embedding(x[0], x[2])}; }},
    {"scatter",
     [](const Tensors& x) {
       return Tensors{x[0].index_add(1, x[2], x[1].narrow(1, 0, 3)), x[0].index_fill(1, x[2], 2)};
     }},
    {"conv1d", [](const Tensors& x) { return Tensors{at::conv1d(x[4], x[4].narrow(2, 0, 3))}; }},
    {"median",
     [](const Tensors& x) {
       return Tensors{std::get<0>(x[0].median(1)), std::get<0>(x[0].kthvalue(2, 1))};
     }},
    {"statistics",
     [](const Tensors& x) {
       return Tensors{x[0].std(1), x[0].logsumexp(1), x[0].norm(2), x[0].prod(1)};
     }},
    {"losses",
     [](const Tensors& x) {
       return Tensors{at::smooth_l1_loss(x[0], x[1]), at::mse_loss(x[0], x[1])};
     }},
    {"attention",
     [](const Tensors& x) {
       const Tensor heads = x[4].view({1, 2, 3, 9}).slice(3, 0, 8);
       return Tensors{at::scaled_dot_product_attention(heads, heads, heads),
                      at::scaled_dot_product_attention(heads, heads, heads, {}, 0, true)};
     }},
    {"cdist", [](const Tensors& x) { return Tensors{at::cdist(x[0], x[1])}; }},
    {"upsample",
     [](const Tensors& x) {
       return Tensors{at::upsample_linear1d(x[4], {5}, false), at::reflection_pad1d(x[4], {1, 2})};
     }},
    {"roll",
     [](const Tensors& x) {
       return Tensors{x[0].roll({2}, {1}), x[0].flip({0})};
     }},
};

Tensors inputs(at::ScalarType dtype, bool needs_grad) {
  Tensors x{at::rand({4, 6}, dtype), at::rand({4, 6}, dtype), at::arange(3), at::rand({4, 6}) > 0.5, at::rand({2, 3, 9}, dtype)};
  for (const int at : {0, 1, 4}) x[at].set_requires_grad(needs_grad);
  return x;
}

Tensors on_meta(const Tensors& x) {
  Tensors all;
  for (const Tensor& one : x) all.push_back(one.detach().to(at::kMeta).set_requires_grad(one.requires_grad()));
  return all;
}

void expect_alike(const Tensor& meta, const Tensor& cpu) {
  ASSERT_EQ(meta.defined(), cpu.defined());
  if (!cpu.defined()) return;
  EXPECT_TRUE(meta.is_meta());
  EXPECT_EQ(meta.sizes(), cpu.sizes());
  EXPECT_EQ(meta.scalar_type(), cpu.scalar_type());
  EXPECT_EQ(meta.requires_grad(), cpu.requires_grad());
}

class MetaKernels : public testing::TestWithParam<Operator> {};

TEST_P(MetaKernels, GiveTheShapesOfTheCpu) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    if (dtype == at::kBFloat16 && GetParam().name == "cdist") continue;  // which the CPU does not run
    const Tensors x = inputs(dtype, false), results = GetParam().run(x), shapes = GetParam().run(on_meta(x));
    ASSERT_EQ(shapes.size(), results.size());
    for (size_t i = 0; i < results.size(); ++i) expect_alike(shapes[i], results[i]);
  }
}

TEST_P(MetaKernels, GiveTheShapesOfGradients) {
  const Tensors x = inputs(at::kFloat, true), meta = on_meta(x);
  const auto backward = [](const Tensors& results) {
    for (const Tensor& result : results)
      if (result.requires_grad()) result.sum().backward({}, true);
  };
  backward(GetParam().run(x));
  backward(GetParam().run(meta));
  for (size_t i = 0; i < x.size(); ++i) expect_alike(meta[i].grad(), x[i].grad());
}

INSTANTIATE_TEST_SUITE_P(All, MetaKernels, testing::ValuesIn(kOperators), [](const auto& info) { return info.param.name; });

TEST(MetaKernelsInPlace, ReturnTheTensorThatTheyWrite) {
  Tensor x = at::empty({4, 6}, at::kMeta);
  EXPECT_TRUE(x.masked_fill_(at::empty({4, 6}, at::TensorOptions(at::kMeta).dtype(at::kBool)), 1).is_same(x));
  EXPECT_TRUE(x.index_fill_(1, at::empty({3}, at::TensorOptions(at::kMeta).dtype(at::kLong)), 1).is_same(x));
  EXPECT_EQ(x.sizes(), (at::IntArrayRef{4, 6}));
}

TEST(MetaKernelsRefuse, ShapesThatDependOnValues) {
  const Tensor x = at::empty({4, 6}, at::kMeta);
  EXPECT_ANY_THROW(x.nonzero());
  EXPECT_ANY_THROW(x.masked_select(x > 0));
  EXPECT_ANY_THROW(x.sum().item());
}

}  // namespace
}  // namespace zt
