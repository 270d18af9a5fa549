// Tests how matrices are packed: round trips, errors of quantisation, cuts, and matrices that cannot be packed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gemm/packed/packed_reference.h"
#include "support/message.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

const PackedKernels& kernels_under_test() {
  static const std::shared_ptr<const PackedKernels> kernels = all_packed_kernels().back().kernels;
  return *kernels;
}

at::Tensor round_trip(const PackSpec& spec, const at::Tensor& weight) {
  return kernels_under_test().unpack(packed_from(kernels_under_test(), spec, weight), at::kFloat);
}

// Returns the smallest positive fp16 that is at least `number`.
float half_above(double number) {
  c10::Half half = static_cast<c10::Half>(static_cast<float>(number));
  if (half.x == 0 || static_cast<float>(half) < number) ++half.x;
  return static_cast<float>(half);
}

TEST(Pack, PanelsHoldTheNumbers) {
  const ThreadsScope threads(1);
  at::manual_seed(1);
  for (const int64_t columns : {1, 2, 127, 128, 129, 300}) {
    for (const int64_t rows : {1, 16, 35}) {
      const at::Tensor weight = at::randn({rows, columns}), rounded = weight.to(at::kBFloat16).to(at::kFloat);
      EXPECT_TRUE(round_trip({PackFormat::panels, 64, false, at::kFloat}, weight).equal(weight)) << rows << " x " << columns;
      EXPECT_TRUE(round_trip({PackFormat::panels, 64, false, at::kBFloat16}, weight).equal(rounded)) << rows << " x " << columns;
    }
  }
}

// Multiples of a power of two that the codes hold are exact.
TEST(Pack, CodesHoldSmallIntegers) {
  const ThreadsScope threads(1);
  for (const int64_t group : {32, 64, 128}) {
    const at::Tensor steps = at::arange(20 * 256).view({20, 256});
    const at::Tensor eight = (at::remainder(steps * 37, 255) - 127).to(at::kFloat) * 0.25;
    const at::Tensor four = at::remainder(steps * 5, 16).to(at::kFloat);
    for (int64_t g = 0; g < 256; g += group) eight.select(1, g).fill_(-127 * 0.25);
    EXPECT_TRUE(round_trip({PackFormat::int8, group}, eight).equal(eight));
    EXPECT_TRUE(round_trip({PackFormat::int4, group}, four * 0.5 - 3).equal(four * 0.5 - 3));
    EXPECT_TRUE(round_trip({PackFormat::int4, group, true}, four * 2 - 16).equal(four * 2 - 16));
    EXPECT_TRUE(round_trip({PackFormat::int4, group, true}, 16 - four * 2).equal(16 - four * 2));
  }
}

// The example of PACKED.md.
TEST(Pack, WritesTheBytesOfTheExample) {
  const at::Tensor weight = at::zeros({1, 32}), wanted = at::zeros({544}, at::kByte);
  weight.narrow(1, 0, 3).copy_(at::tensor({1.0F, -2.0F, 3.0F}));
  wanted.narrow(0, 0, 3).copy_(at::tensor({0x2a, 0xab, 0x7f}));
  wanted.narrow(0, 512, 2).copy_(at::tensor({0x0b, 0x26}));
  EXPECT_TRUE(packed_from(kernels_under_test(), {PackFormat::int8, 32}, weight).bytes.equal(wanted));
}

TEST(Pack, UnpackGivesTheValuesOfTheDefinition) {
  const ThreadsScope threads(1);
  at::manual_seed(2);
  const auto all = all_packed_kernels();
  for (const PackSpec& spec : all_pack_specs()) {
    const PackedMatrix matrix = packed_from(*all[0].kernels, spec, at::randn({37, 256}));
    const at::Tensor wanted = reference_values(matrix);
    for (const auto& [name, kernels] : all) {
      EXPECT_TRUE(packed_from(*kernels, spec, kernels->unpack(matrix, at::kFloat)).bytes.numel() == matrix.bytes.numel());
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
        EXPECT_TRUE(kernels->unpack(matrix, dtype).equal(wanted.to(dtype))) << name << ": " << describe_spec(spec);
    }
  }
}

// The scale that cuts off no number is among those that are tried.
TEST(Pack, SquaredErrorsAreBounded) {
  const ThreadsScope threads(1);
  at::manual_seed(3);
  for (const double size : {1e-9, 1e-6, 1e-3, 1.0, 1000.0}) {
    for (const int64_t group : {32, 64, 128}) {
      at::Tensor weight = at::randn({24, 256}) * size;
      weight.select(1, 3).mul_(4);
      const at::Tensor groups = weight.view({24, 256 / group, group}), largest = groups.abs().amax(2);
      const at::Tensor width = groups.amax(2) - groups.amin(2);
      const auto check = [&](const PackSpec& spec, const at::Tensor& range, double levels) {
        const at::Tensor error =
            (round_trip(spec, weight) - weight).to(at::kDouble).square().view({24, 256 / group, group}).sum(2);
        for (int64_t i = 0; i < error.numel(); ++i) {
          // int4: the minimum is rounded as well, which widens the range.
          const double spread =
              range.view(-1)[i].item<double>() + (levels == 15 ? largest.view(-1)[i].item<double>() * 0x1p-10 + 0x1p-24 : 0);
          const double half_step = half_above(spread / levels) / 2;
          EXPECT_LE(error.view(-1)[i].item<double>(), static_cast<double>(group) * half_step * half_step * (1 + 1e-6))
              << describe_spec(spec) << " " << size;
        }
      };
      check({PackFormat::int8, group}, largest, 127);
      check({PackFormat::int4, group, true}, largest, 7);
      check({PackFormat::int4, group}, width, 15);
    }
  }
}

TEST(Pack, AGroupOfZerosIsZero) {
  const ThreadsScope threads(1);
  for (const PackSpec& spec : all_pack_specs()) {
    const PackedMatrix matrix = packed_from(kernels_under_test(), spec, at::zeros({17, 128}));
    EXPECT_EQ(kernels_under_test().unpack(matrix, at::kFloat).count_nonzero().item<int64_t>(), 0) << describe_spec(spec);
    const UnpackedCodes codes(matrix);
    if (spec.format == PackFormat::int8 || spec.format == PackFormat::int4) {
      EXPECT_EQ(codes.scale(16, 0), 0) << describe_spec(spec);
    }
  }
}

TEST(Pack, AllInstructionSetsAndThreadsWriteTheSameBytes) {
  const ThreadsScope threads(1);
  at::manual_seed(4);
  for (const PackSpec& spec : all_pack_specs()) {
    const at::Tensor weight = at::randn({50, 384}).to(at::kHalf);
    at::set_num_threads(1);
    const PackedMatrix wanted = packed_from(kernels_under_test(), spec, weight);
    at::set_num_threads(3);
    for (const auto& [name, kernels] : all_packed_kernels()) {
      EXPECT_TRUE(packed_from(*kernels, spec, weight).bytes.equal(wanted.bytes)) << name << " " << describe_spec(spec);
      EXPECT_TRUE(packed_from(*kernels, spec, weight.to(at::kDouble)).bytes.equal(wanted.bytes))
          << name << " " << describe_spec(spec);
    }
  }
}

TEST(Pack, CutsOfRowsAndGroupsHaveTheSameValues) {
  const ThreadsScope threads(1);
  at::manual_seed(5);
  const at::Tensor weight = at::randn({70, 512});
  for (const PackSpec& spec : all_pack_specs()) {
    if (spec.format == PackFormat::nf4) continue;  // its offset belongs to the whole matrix
    const at::Tensor whole = round_trip(spec, weight);
    EXPECT_TRUE(round_trip(spec, weight.narrow(0, 13, 40)).equal(whole.narrow(0, 13, 40))) << describe_spec(spec);
    EXPECT_TRUE(round_trip(spec, weight.narrow(1, 128, 256)).equal(whole.narrow(1, 128, 256))) << describe_spec(spec);
    // A cut at a panel is a range of bytes.
    const at::Tensor bytes = packed_from(kernels_under_test(), spec, weight).bytes;
    const at::Tensor first = packed_from(kernels_under_test(), spec, weight.narrow(0, 0, 32)).bytes;
    EXPECT_TRUE(bytes.narrow(0, 0, first.numel()).equal(first)) << describe_spec(spec);
    EXPECT_TRUE(bytes.narrow(0, first.numel(), bytes.numel() - first.numel())
                    .equal(packed_from(kernels_under_test(), spec, weight.narrow(0, 32, 38)).bytes))
        << describe_spec(spec);
  }
}

TEST(Pack, RefusesNumbersThatAreNotFinite) {
  const ThreadsScope threads(1);
  for (const PackSpec& spec : all_pack_specs()) {
    for (const double bad : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 1e300,
                             std::numeric_limits<double>::quiet_NaN()}) {
      at::Tensor weight = at::ones({40, 128}, at::kDouble);
      weight[21][77] = bad;
      weight[35][1] = bad;
      const std::string text = message_of<Fault>([&] { packed_from(kernels_under_test(), spec, weight); });
      EXPECT_NE(text.find("row 21, column 77"), std::string::npos) << text;
    }
  }
}

TEST(Pack, RefusesScalesAboveThoseOfFp16) {
  const ThreadsScope threads(1);
  for (const PackSpec& spec : {PackSpec{PackFormat::int8}, PackSpec{PackFormat::int4}, PackSpec{PackFormat::int4, 64, true}}) {
    at::Tensor weight = at::ones({20, 192});
    weight[18].narrow(0, 64, 64).fill_(3e37);
    weight[18][64] = -3e37;
    const std::string text = message_of<Fault>([&] { packed_from(kernels_under_test(), spec, weight); });
    EXPECT_NE(text.find("row 18, columns 64 to 127"), std::string::npos) << text;
  }
}

TEST(Pack, TakesEmptyMatrices) {
  const ThreadsScope threads(1);
  for (const PackSpec& spec : all_pack_specs()) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{0, 128}, {0, 0}, {3, 0}})
      EXPECT_EQ(round_trip(spec, at::zeros({rows, columns})).numel(), 0) << describe_spec(spec);
  }
}

}  // namespace
}  // namespace zt::test
