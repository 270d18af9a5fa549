#include "parts/dropout.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "layers/layers.h"
#include "nn/support/run.h"

namespace zt::nn {
namespace {

using Table = Value::Table;

at::Tensor drop(const at::Tensor& x, double p, test::FakeContext context = {}) {
  return Dropout(p).run(x, context);
}

TEST(Dropout, KeepsTheRightFraction) {
  const at::Tensor y = drop(at::ones({4, 50000}), 0.3);
  // The fraction of zeros among n independent elements has the standard deviation sqrt(p (1 - p) / n) = 0.001. The bound is five
  // deviations.
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 5 * 0.00103);
  EXPECT_TRUE(y.ne(0).logical_not().logical_or(y.eq(1.0F / 0.7F)).all().item<bool>());
}

TEST(Dropout, NeighboursAreIndependent) {
  const at::Tensor zero = drop(at::ones({2, 100000}), 0.5).eq(0).to(at::kDouble) - 0.5;
  // The mean of n products of independent numbers +-1/2 has the standard deviation 1 / (4 sqrt(n)) = 0.0008.
  EXPECT_NEAR((zero.narrow(1, 0, 99999) * zero.narrow(1, 1, 99999)).narrow(0, 0, 1).mean().item<double>(), 0, 5 * 0.0008);
  EXPECT_NEAR((zero[0] * zero[1]).mean().item<double>(), 0, 5 * 0.0008);
}

TEST(Dropout, DoesNotDependOnTheSplitOfTheBatch) {
  const at::Tensor x = at::ones({5, 3, 7});
  test::FakeContext whole, part;
  whole.sample = 10;
  const at::Tensor all = drop(x, 0.5, whole);
  for (int64_t i = 0; i < 5; ++i) {
    part.sample = 10 + i;
    EXPECT_TRUE(at::equal(drop(x.narrow(0, i, 1), 0.5, part)[0], all[i])) << i;
  }
}

// By definition, an element is kept if its number of the stream is at least the probability.
TEST(Dropout, FollowsTheNumbersOfTheStream) {
  test::FakeContext context;
  context.sample = 7;
  const DropoutMask keep(0.3, context, 2);
  const at::Tensor mask = keep.mask({3, 5, 431});  // more numbers per sample than are drawn at once
  std::vector<float> numbers(5 * 431);
  std::vector<uint8_t> part(20, 9);
  for (int64_t sample = 0; sample < 3; ++sample) {
    context.rng(Purpose::dropout).uniform(7 + sample, int64_t{2} << 40, numbers);
    const auto* kept = mask[sample].const_data_ptr<uint8_t>();
    for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(kept[i], numbers[i] >= 0.3F) << sample << ", " << i;
    keep.fill(part.data(), sample, 1021, 19);
    EXPECT_TRUE(std::equal(part.begin(), part.begin() + 19, kept + 1021));
    EXPECT_EQ(part[19], 9);
  }
}

// The threads' shares begin within samples, and within the blocks of numbers that are drawn together.
TEST(Dropout, DoesNotDependOnThreads) {
  const int threads = at::get_num_threads();
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{64, 4001}, {1, 131077}, {200003, 1}}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor x = at::randn(shape, at::kDouble).to(dtype), residual = at::randn(shape, at::kDouble).to(dtype);
      const auto both = [&] {
        test::FakeContext context;
        const at::Tensor in = x.clone().set_requires_grad(true), out = Dropout(0.5).run(in, context, residual);
        return std::pair(out.detach(), torch::autograd::grad({out}, {in}, {residual})[0]);
      };
      at::set_num_threads(1);
      const auto [out, dx] = both();
      for (const int count : {2, 3}) {
        at::set_num_threads(count);
        const auto [again, dx_again] = both();
        EXPECT_TRUE(at::equal(again, out) && at::equal(dx_again, dx)) << c10::toString(dtype) << ", " << count << " threads";
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(Dropout, MasksDifferByStepPositionSeedAndIndex) {
  const at::Tensor x = at::ones({1, 200});
  test::FakeContext base, step, position, seed;
  step.step = 1;
  position.position = 1;
  seed.seed = 2;
  const at::Tensor first = drop(x, 0.5, base);
  EXPECT_TRUE(at::equal(first, drop(x, 0.5, base)));
  EXPECT_FALSE(at::equal(first, drop(x, 0.5, step)));
  EXPECT_FALSE(at::equal(first, drop(x, 0.5, position)));
  EXPECT_FALSE(at::equal(first, drop(x, 0.5, seed)));
  EXPECT_FALSE(at::equal(first, Dropout(0.5, 1).run(x, base)));
}

TEST(Dropout, DoesNothingOutsideTraining) {
  test::FakeContext context;
  context.mode = Mode::eval;
  const at::Tensor x = at::rand({2, 3}), residual = at::rand({2, 3});
  EXPECT_TRUE(drop(x, 0.5, context).is_same(x));
  EXPECT_TRUE(drop(x, 0).is_same(x));
  EXPECT_TRUE(at::equal(Dropout(0.5).run(x, context, residual), residual + x));
}

TEST(Dropout, EmptyInput) {
  EXPECT_EQ(drop(at::ones({0, 3}), 0.5).numel(), 0);
  EXPECT_EQ(drop(at::ones({2, 0}), 0.5).numel(), 0);
}

// A whole block with every kind of dropout. A sample alone gives the same results as in a batch, forward and backward.
TEST(Dropout, ABlockDoesNotDependOnTheSplitOfTheBatch) {
  const test::Subject subject = test::subject(make_block(Table{{"hidden", 6}, {"heads", 2}, {"dropout", 0.4}}));
  test::initialise(subject, 3, at::kDouble);
  const at::Tensor x = at::randn({3, 5, 6}, at::kDouble), cot = at::randn({3, 5, 6}, at::kDouble);
  test::FakeContext whole;
  const test::Result all = test::run(subject, {x}, whole, cot);
  test::FakeContext parts;
  for (int64_t i = 0; i < 3; ++i) {
    parts.sample = i;
    const test::Result one = test::run(subject, {x.narrow(0, i, 1)}, parts, cot.narrow(0, i, 1));
    EXPECT_LE(test::distance(one.out[0], all.out[i]), 1e-14);
    EXPECT_LE(test::distance(one.input_grads[0][0], all.input_grads[0][i]), 1e-13);
  }
  for (const auto& [param, gradient] : whole.sunk)
    EXPECT_LE(test::distance(parts.sunk.at(param), gradient), 1e-13) << param->name;
}

}  // namespace
}  // namespace zt::nn
