// Tests row algorithms of the CUDA kernels that only add and multiply: they give the same bits as the CPU's loops, which other
// tests compare with ATen.
#include <gtest/gtest.h>

#include "cuda/device_rows.h"
#include "cuda_bounds.h"
#include "cuda_team.h"
#include "parts/dropout.h"
#include "parts/rotary.h"
#include "zt/base/rows.h"

namespace zt::nn {
namespace {

using test::emulate;
using test::some;

class CudaRows : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor made_up(at::IntArrayRef shape, double factor = 1) const { return some(shape, GetParam(), factor); }
};

TEST_P(CudaRows, ScaleKept) {
  const int64_t n = 2 * device::kFlatRow + 5;
  const at::Tensor x = made_up({n}), residual = made_up({n}, 0.3), keep = x.gt(-1).to(at::kByte);
  for (const at::Tensor& more : {residual, at::Tensor()}) {
    const at::Tensor got = at::full_like(x, 9), expected = at::empty_like(x);
    for_dtype(x, [&](auto zero) {
      using T = decltype(zero);
      const auto* kept = keep.const_data_ptr<uint8_t>();
      emulate(device::ScaleKept<T>{got.data_ptr<T>(), x.const_data_ptr<T>(), kept, data_or_null<T>(more), 1.25, n});
      kernels::scale_kept(expected.data_ptr<T>(), x.const_data_ptr<T>(), kept, data_or_null<T>(more), 1.25, n);
    });
    EXPECT_TRUE(at::equal(got, expected));
  }
}

TEST_P(CudaRows, Rotate) {
  for (const int64_t half : {1, 5, 8, 32}) {
    const int64_t heads = 3, columns = 2 * half * heads + 5, tokens = 6;
    Rotary rotary(2 * half, 100);
    const Angles angles = rotary.angles(at::tensor({5, 0, 0, 9, 2, 7}, at::kLong), GetParam());
    for (const Turn turn : {Turn::forward, Turn::back}) {
      const at::Tensor got = made_up({2, tokens, columns}), expected = got.clone();
      rotate_heads(expected, angles, heads, turn);
      for_dtype(got, [&](auto zero) {
        using T = decltype(zero);
        using W = kernels::Wide<T>;
        emulate(device::Rotate<T>{got.data_ptr<T>(), angles.cosine.const_data_ptr<W>(), angles.sine.const_data_ptr<W>(),
                                  angles.rows.const_data_ptr<int64_t>(), tokens, static_cast<double>(turn), heads, half,
                                  2 * tokens, columns});
      });
      EXPECT_TRUE(at::equal(got, expected)) << half;
    }
  }
}

TEST_P(CudaRows, GatherRows) {
  const at::Tensor table = made_up({7, 37}), index = at::tensor({6, 0, 0, 3}, at::kLong);
  const at::Tensor got = made_up({4, 37}, 0.1), expected = got.clone();
  for_dtype(table, [&](auto zero) {
    using T = decltype(zero);
    const auto* at = index.const_data_ptr<int64_t>();
    emulate(device::GatherRows<T>{got.data_ptr<T>(), table.const_data_ptr<T>(), at, 4, 37});
    for (int64_t r = 0; r < 4; ++r)
      kernels::add_rows(expected.data_ptr<T>() + r * 37, table.const_data_ptr<T>(), at + r, 1, 37, 37);
  });
  EXPECT_TRUE(at::equal(got, expected));
}

template <class To, class From>
void expect_scattered(const at::Tensor& from, at::ScalarType to) {
  const int64_t width = from.size(1);
  const at::Tensor index = at::tensor({3, 1, 3, 0, 3, 1}, at::kLong);
  const at::Tensor got = at::ones({5, width}, to), expected = got.clone();
  const std::tuple<at::Tensor, at::Tensor> found = index.sort(std::optional(true), 0, false);
  const at::Tensor &sorted = std::get<0>(found), &places = std::get<1>(found);
  emulate(device::ScatterRows<To, From>{got.data_ptr<To>(), from.const_data_ptr<From>(), sorted.const_data_ptr<int64_t>(),
                                        places.const_data_ptr<int64_t>(), 6, width});
  const std::vector<std::vector<int64_t>> uses{{3}, {1, 5}, {}, {0, 2, 4}, {}};
  for (int64_t row = 0; row < 5; ++row) {
    const auto& rows = uses[static_cast<size_t>(row)];
    kernels::add_rows(expected.data_ptr<To>() + row * width, from.const_data_ptr<From>(), rows.data(),
                      static_cast<int64_t>(rows.size()), width, width);
  }
  EXPECT_TRUE(at::equal(got, expected));
}

TEST_P(CudaRows, ScatterRows) {
  const at::Tensor from = made_up({6, 61});
  for_dtype(from, [&](auto zero) {
    using T = decltype(zero);
    expect_scattered<T, T>(from, GetParam());
    expect_scattered<kernels::Wide<T>, T>(from, wide_dtype(GetParam()));
  });
}

INSTANTIATE_TEST_SUITE_P(Nn, CudaRows, testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf), test::dtype_of);

TEST(CudaKeepMask, IsTheMaskOfTheCpu) {
  test::FakeContext context;
  context.sample = 5;
  const int index = 2;
  const DropoutMask mask(0.3, context, index);
  for (const int64_t width : {int64_t{1}, int64_t{7}, int64_t{4096}, 2 * device::kFlatRow + 3}) {
    for (const int64_t first : {0, 1, 6, 8}) {
      const int64_t stride = width + 5, lines = 3;
      const at::Tensor all = mask.mask({2, first + lines * stride}), got = at::full({2, 1 + lines * (width + 1)}, 7, at::kByte);
      const auto number = (static_cast<uint64_t>(index) << 40U) + static_cast<uint64_t>(first);
      emulate(device::KeepMask{got.data_ptr<uint8_t>() + 1, context.rng(Purpose::dropout).key(), 5, number, 0.3F, 2, got.size(1),
                               lines, stride, width, width + 1});
      const auto part = [&](const at::Tensor& x, int64_t begin, int64_t pitch) {
        return x.narrow(1, begin, lines * pitch).view({2, lines, pitch});
      };
      EXPECT_TRUE(at::equal(part(got, 1, width + 1).narrow(2, 0, width), part(all, first, stride).narrow(2, 0, width))) << width;
      EXPECT_TRUE((part(got, 1, width + 1).narrow(2, width, 1) == 7).all().item<bool>()) << "nothing else is written";
    }
  }
}

}  // namespace
}  // namespace zt::nn
