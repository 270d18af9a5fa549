// Tests 16-bit gradients and 16-bit copies: compares every optimizer with an fp32 step on the widened gradient and a separate
// rounding.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>

#include "support.h"
#include "zt/base/tensor.h"

namespace zt::optim::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kSentinel = 0x1234;  // the content of a copy before the update

// The dtypes of the gradient and of the copy; float32 for `copy` means no copy.
struct Formats {
  at::ScalarType grad, copy;

  std::string name() const {
    return fmt::format("{} gradient, {} copy", dtype_name(grad), copy == at::kFloat ? "no" : dtype_name(copy));
  }
};

std::vector<Formats> every_format() {
  std::vector<Formats> all;
  for (const auto grad : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto copy : {at::kFloat, at::kBFloat16, at::kHalf}) all.push_back({grad, copy});
  }
  return all;
}

at::Tensor bits(const at::Tensor& tensor) {
  return tensor.view(tensor.element_size() == 2 ? at::kShort : at::kInt);
}

// Returns whether all bits are equal, except that any two NaNs count as equal.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return ((bits(a) == bits(b)) | (a.isnan() & b.isnan())).all().item<bool>();
}

// Sets some elements to special values: not finite, tiny, or too large for float16.
at::Tensor with_specials(at::Tensor tensor, int64_t first) {
  const std::vector<double> specials{kInf, -kInf, std::nan(""), 0.0, -0.0, 1e-7, -6e-8, 3e-39, 65519.0, 1e5, -1e38};
  for (size_t i = 0; i < specials.size(); ++i) {
    const int64_t place = first + static_cast<int64_t>(i) * 7;
    if (place < tensor.numel()) tensor[place] = specials[i];
  }
  return tensor;
}

struct Updated {
  FlatState shard, expected;  // expected has no copy
};

// Runs three updates of `count` elements in `formats`, and the same updates in fp32 by the plain loop.
Updated update_both(const Kind& kind, Isa isa, Formats formats, int64_t count, const std::vector<Segment>& segments) {
  const auto optimizer = kind.make(kind.options, isa), plain = kind.make(kind.options, Isa::plain);
  const at::Tensor start = with_specials(numbers(count, 1, at::kFloat), 3);
  Updated out{shard_of(*optimizer, start), shard_of(*plain, start)};
  if (formats.copy != at::kFloat) out.shard.copy = at::full({count}, kSentinel, at::kShort).view(formats.copy);
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor grad = with_specials(numbers(count, 100 + step, at::kFloat) * 10, 5).to(formats.grad);
    const Scalars scalars{.lr = optimizer->lr(), .grad_scale = 1.0 / 3, .step = step};
    optimizer->step(out.shard, grad, segments, scalars);
    plain->step(out.expected, grad.to(at::kFloat), segments, scalars);
  }
  return out;
}

// Expects that the copy is the master rounded by ATen on the segments, that other elements are unchanged, and that all NaNs have
// the same bits.
void expect_copy(const at::Tensor& copy, const at::Tensor& master, const std::vector<Segment>& segments) {
  at::Tensor expected = at::full_like(bits(copy), kSentinel).view(copy.scalar_type());
  for (const Segment& segment : segments) {
    expected.slice(0, segment.begin, segment.end).copy_(master.slice(0, segment.begin, segment.end));
  }
  EXPECT_TRUE(same(copy, expected));
  const int quiet = copy.scalar_type() == at::kHalf ? 0x7E00 : 0x7FC0;
  EXPECT_TRUE((bits(copy).masked_select(copy.isnan()) == quiet).all().item<bool>());
}

class HalfWidth : public testing::TestWithParam<std::string> {
 protected:
  Kind kind() const { return kinds().at(GetParam()); }

  void expect_equal_to_passes(Isa isa, int64_t count, const std::vector<Segment>& segments) const {
    for (const Formats& formats : every_format()) {
      SCOPED_TRACE(fmt::format("{}, {} elements, {}", isa_name(isa), count, formats.name()));
      const Updated updated = update_both(kind(), isa, formats, count, segments);
      EXPECT_TRUE(same(updated.shard.master, updated.expected.master));
      for (const auto& [name, state] : updated.shard.state) EXPECT_TRUE(same(state, updated.expected.state.at(name))) << name;
      if (updated.shard.copy.defined()) expect_copy(updated.shard.copy, updated.expected.master, segments);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, HalfWidth, testing::Values("adamw", "adam", "sgd", "sgd momentum", "sgd nesterov", "lion"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST_P(HalfWidth, EqualsSeparatePasses) {
  for (const Isa isa : supported_isas()) {
    for (const int64_t count : {0, 1, 2, 7, 16, 17, 31, 33, 63, 64, 65, 127, 1037}) {
      expect_equal_to_passes(isa, count, {{0, 0, 0, count}});
    }
  }
}

TEST_P(HalfWidth, GapsAreLeftAlone) {
  for (const Isa isa : supported_isas()) {
    expect_equal_to_passes(isa, 1037, {{0, 0, 3, 68}, {2, 0, 101, 101}, {3, 0, 333, 1030}});
    expect_equal_to_passes(isa, 5, {});
  }
}

TEST_P(HalfWidth, ErrorsNameWhatIsWrong) {
  const auto optimizer = kind().make(kind().options, best_isa());
  const at::Tensor start = numbers(10, 1, at::kFloat);
  FlatState shard = shard_of(*optimizer, start), wide = shard_of(*optimizer, start.to(at::kDouble));
  const auto step = [&](FlatState& state, const at::Tensor& copy, const at::Tensor& grad) {
    state.copy = copy;
    return complaint([&] { optimizer->step(state, grad, whole(state), {.lr = 0.1}); });
  };
  const at::Tensor copy = at::zeros({10}, at::kBFloat16), half = start.to(at::kBFloat16);
  const auto complains = [&](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  complains(step(shard, at::zeros({10}), start), "the copy must be contiguous and like the parameters");
  complains(step(shard, at::zeros({10}, at::kShort), start), "of type bfloat16 or float16, got int16[10]");
  complains(step(shard, copy.slice(0, 0, 9), start), "the copy must be");
  complains(step(shard, at::zeros({20}, at::kHalf).slice(0, 0, 20, 2), start), "the copy must be contiguous");
  complains(step(shard, copy, half.slice(0, 0, 9)), "the gradient must be");
  complains(step(shard, copy, start.to(at::kDouble)), "of type float32 or bfloat16 or float16, got float64[10]");
  complains(step(wide, copy, start.to(at::kDouble)), "a 16-bit copy is made of float32 parameters, got float64[10]");
  complains(step(wide, at::Tensor(), half), "of type float64, got bfloat16[10]");
  EXPECT_TRUE(at::equal(shard.master, start));  // nothing was changed
  EXPECT_TRUE(at::equal(copy, at::zeros_like(copy)));
  EXPECT_EQ(step(shard, copy, half), "");
  EXPECT_FALSE(at::equal(copy, at::zeros_like(copy)));
}

}  // namespace
}  // namespace zt::optim::test
