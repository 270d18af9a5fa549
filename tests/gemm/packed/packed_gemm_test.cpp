// Tests the GEMMs of packed matrices: the bits that PACKED.md defines, and the errors against fp64.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "gemm/packed/packed_reference.h"
#include "providers.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

constexpr std::array kXDtypes{at::kFloat, at::kBFloat16, at::kHalf};

// Equal bits, except that every NaN is equal to every other.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(at::isnan(a), at::isnan(b)) &&
         at::equal(at::nan_to_num(a, 0.0).view(at::kByte), at::nan_to_num(b, 0.0).view(at::kByte));
}

std::vector<Activations> activations_of(const PackSpec& spec) {
  if (spec.format == PackFormat::int8 || spec.format == PackFormat::int4) return {Activations::floating, Activations::int8};
  return {Activations::floating};
}

at::Tensor multiply(const PackedKernels& kernels, const at::Tensor& x, const PackedMatrix& w, at::ScalarType dtype,
                    Activations activations = Activations::floating, const GemmAddends& addends = {}) {
  at::Tensor out = at::full({x.size(0), w.rows}, std::numeric_limits<float>::quiet_NaN(), dtype);
  kernels.multiply(x, w, out, activations, addends);
  return out;
}

// A panel of 16 rows may be the only one, whole, or followed by others.
TEST(PackedGemm, HasTheBitsOfTheDefinition) {
  const ThreadsScope threads(1);
  at::manual_seed(1);
  const auto all = all_packed_kernels();
  for (const PackSpec& spec : all_pack_specs()) {
    const int64_t columns = spec.format == PackFormat::panels ? 133 : 2 * spec.group;
    for (const int64_t rows : {1, 15, 16, 17, 100}) {
      const PackedMatrix w = packed_from(*all[0].kernels, spec, at::randn({rows, columns}));
      for (const at::ScalarType dtype : kXDtypes) {
        const at::Tensor x = at::randn({rows == 17 ? 200 : 64, columns}).to(dtype);
        for (const Activations activations : activations_of(spec)) {
          const at::Tensor wanted = reference_gemm(x, w, activations);
          for (const auto& [name, kernels] : all) {
            for (const int64_t m : {1, 2, 3, 15, 16, 17, 64, 200}) {
              if (m > x.size(0)) continue;
              for (const at::ScalarType out : {dtype, at::kFloat}) {
                if (out != dtype && m != 3 && m != 17) continue;
                EXPECT_TRUE(same_bits(multiply(*kernels, x.narrow(0, 0, m), w, out, activations), wanted.narrow(0, 0, m).to(out)))
                    << name << ": " << describe_spec(spec) << ", " << m << " x " << rows << ", " << dtype_name(dtype);
              }
            }
          }
        }
      }
    }
  }
}

TEST(PackedGemm, ARowDoesNotDependOnTheOthersOrTheThreads) {
  const ThreadsScope threads(1);
  at::manual_seed(2);
  for (const PackSpec& spec : all_pack_specs()) {
    for (const auto& [name, kernels] : all_packed_kernels()) {
      if (name == "plain") continue;
      const PackedMatrix w = packed_from(*kernels, spec, at::randn({530, 256}));
      for (const Activations activations : activations_of(spec)) {
        const at::Tensor x = at::randn({300, 256}).to(at::kBFloat16);
        at::set_num_threads(2);
        const at::Tensor wanted = multiply(*kernels, x, w, at::kFloat, activations);
        at::set_num_threads(1);
        EXPECT_TRUE(multiply(*kernels, x, w, at::kFloat, activations).equal(wanted)) << name << " " << describe_spec(spec);
        for (const auto& [begin, rows] :
             std::vector<std::array<int64_t, 2>>{{0, 1}, {299, 1}, {3, 2}, {77, 5}, {120, 7}, {200, 13}, {250, 50}, {1, 257}}) {
          at::set_num_threads(static_cast<int>(1 + rows % 2));
          EXPECT_TRUE(
              multiply(*kernels, x.narrow(0, begin, rows), w, at::kFloat, activations).equal(wanted.narrow(0, begin, rows)))
              << name << " " << describe_spec(spec) << " " << begin << " " << rows;
        }
      }
    }
  }
}

// Rows of x may be apart, and so may rows of the result.
TEST(PackedGemm, ReadsAndWritesRowsWithStrides) {
  const ThreadsScope threads(1);
  at::manual_seed(3);
  for (const auto& [name, kernels] : all_packed_kernels()) {
    const PackedMatrix w = packed_from(*kernels, PackSpec{PackFormat::int8}, at::randn({20, 64}));
    const at::Tensor x = at::randn({9, 70}).narrow(1, 3, 64), all = at::zeros({9, 30});
    kernels->multiply(x, w, all.narrow(1, 5, 20), Activations::floating, {});
    EXPECT_TRUE(all.narrow(1, 5, 20).equal(reference_gemm(x, w, Activations::floating))) << name;
    EXPECT_EQ(all.narrow(1, 0, 5).abs().sum().item<float>() + all.narrow(1, 25, 5).abs().sum().item<float>(), 0) << name;
  }
}

// Bias and residual are added in fp32, in this order, and the sum is rounded once.
TEST(PackedGemm, AddsBeforeItRounds) {
  const ThreadsScope threads(1);
  at::manual_seed(6);
  const PackSpec spec{PackFormat::int4};
  for (const auto& [name, kernels] : all_packed_kernels()) {
    const PackedMatrix w = packed_from(*kernels, spec, at::randn({100, 128}));
    for (const at::ScalarType dtype : kXDtypes) {
      for (const int64_t m : {1, 5, 40, 300}) {
        const at::Tensor x = at::randn({m, 128}).to(dtype), bias = at::randn({100}).to(dtype);
        const at::Tensor residual = at::randn({m, 104}).to(dtype).narrow(1, 2, 100);
        const at::Tensor sum = multiply(*kernels, x, w, at::kFloat);
        for (const at::ScalarType out : {dtype, at::kFloat}) {
          const auto got = [&](const GemmAddends& addends) {
            return multiply(*kernels, x, w, out, Activations::floating, addends);
          };
          EXPECT_TRUE(same_bits(got({bias, {}}), (sum + bias.to(at::kFloat)).to(out))) << name << " " << m;
          EXPECT_TRUE(same_bits(got({{}, residual}), (sum + residual.to(at::kFloat)).to(out))) << name << " " << m;
          const at::Tensor both = (sum + bias.to(at::kFloat) + residual.to(at::kFloat)).to(out);
          EXPECT_TRUE(same_bits(got({bias, residual}), both)) << name << " " << m;
        }
      }
    }
  }
}

// Through the SDK, with the kernels of this process: what is added is checked, and added also where there is nothing to multiply.
TEST(PackedGemm, ChecksWhatItAdds) {
  register_gemm_providers();
  const PackedMatrix w =
      packed_from(*all_packed_kernels()[0].kernels, PackSpec{PackFormat::panels, 64, false, at::kFloat}, at::randn({6, 0}));
  const at::Tensor x = at::randn({3, 0}), out = at::full({3, 6}, 7.0F), bias = at::randn({6}), residual = at::randn({3, 6});
  packed_gemm(x, w, out, Activations::floating, {bias, residual});
  EXPECT_TRUE(out.equal(bias + residual));
  for (const GemmAddends& wrong :
       {GemmAddends{at::randn({5}), {}}, GemmAddends{bias.to(at::kBFloat16), {}}, GemmAddends{{}, at::randn({3, 5})},
        GemmAddends{{}, residual.to(at::kDouble)}, GemmAddends{{}, at::randn({6, 3}).t()}}) {
    EXPECT_THROW(packed_gemm(x, w, out, Activations::floating, wrong), Misuse);
  }
}

// The instruction for bf16 takes subnormal numbers as zero, so these must go another way.
TEST(PackedGemm, KeepsSubnormalNumbers) {
  const ThreadsScope threads(1);
  at::manual_seed(4);
  const PackSpec panels{PackFormat::panels, 64, false, at::kBFloat16}, int4{PackFormat::int4, 64, true, at::kBFloat16};
  for (const double power : {-126, -120, -112, -70, -60, -50}) {
    const at::Tensor x = (at::randn({20, 256}) * std::exp2(power)).to(at::kBFloat16);
    const at::Tensor tiny = at::randn({20, 256}) * std::exp2(std::max(power, -149 - power));
    for (const PackSpec& spec : {panels, int4}) {
      const PackedMatrix w =
          packed_from(*all_packed_kernels()[0].kernels, spec, spec.format == PackFormat::panels ? tiny : at::randn({20, 256}));
      const at::Tensor wanted = reference_gemm(x, w, Activations::floating);
      EXPECT_GT(wanted.count_nonzero().item<int64_t>(), 0) << power;
      for (const auto& [name, kernels] : all_packed_kernels())
        EXPECT_TRUE(same_bits(multiply(*kernels, x, w, at::kFloat), wanted))
            << name << " " << describe_spec(spec) << " " << power;
    }
  }
}

TEST(PackedGemm, KeepsInfinityAndNanInTheirRow) {
  const ThreadsScope threads(1);
  at::manual_seed(5);
  for (const PackSpec& spec : all_pack_specs()) {
    for (const auto& [name, kernels] : all_packed_kernels()) {
      const PackedMatrix w = packed_from(*kernels, spec, at::randn({33, 128}));
      for (const Activations activations : activations_of(spec)) {
        for (const at::ScalarType dtype : kXDtypes) {
          const at::Tensor x = at::randn({18, 128}).to(dtype);
          const at::Tensor wanted = multiply(*kernels, x, w, dtype, activations);
          x[17][5] = std::numeric_limits<float>::infinity();
          x[16][127] = std::numeric_limits<float>::quiet_NaN();
          const at::Tensor got = multiply(*kernels, x, w, dtype, activations);
          EXPECT_TRUE(got.narrow(0, 0, 16).equal(wanted.narrow(0, 0, 16))) << name << " " << describe_spec(spec);
          EXPECT_FALSE(got.narrow(0, 16, 2).isfinite().any().item<bool>()) << name << " " << describe_spec(spec);
        }
      }
    }
  }
}

// Each element is a sum of at most `columns` products, one per group of scaled sums and one of minima: each step rounds once (N.
// Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
TEST(PackedGemm, AgreesWithFp64) {
  const ThreadsScope threads(1);
  at::manual_seed(6);
  const int64_t columns = 1024;
  for (const PackSpec& spec : all_pack_specs()) {
    const auto kernels = all_packed_kernels().back().kernels;
    const PackedMatrix w = packed_from(*kernels, spec, at::randn({70, columns}) * 0.02);
    const at::Tensor x = at::randn({40, columns}).to(at::kBFloat16), wide = x.to(at::kDouble);
    const UnpackedCodes codes(w);
    at::Tensor size = reference_values(w).to(at::kDouble).abs();
    for (int64_t i = 0; codes.has_minima && i < size.numel(); ++i) {
      const int64_t row = i / columns, g = i % columns / codes.group;
      size.data_ptr<double>()[i] = codes.scale(row, g) * codes.code(row, i % columns) + std::abs(codes.minimum(row, g));
    }
    const double steps = static_cast<double>(codes.group + 2 * codes.groups + 4) * 0x1p-24;
    const at::Tensor exact = wide.mm(reference_values(w).to(at::kDouble).t());
    const at::Tensor error = (multiply(*kernels, x, w, at::kFloat).to(at::kDouble) - exact).abs();
    EXPECT_TRUE(error.le(wide.abs().mm(size.t()) * (steps / (1 - steps))).all().item<bool>()) << describe_spec(spec);
  }
}

// An activation of 8 bits is off by at most half its scale.
TEST(PackedGemm, ActivationsOfEightBitsAreOffByHalfTheirScale) {
  const ThreadsScope threads(1);
  at::manual_seed(7);
  const int64_t columns = 512, group = 64;
  for (const PackSpec& spec : {PackSpec{PackFormat::int8}, PackSpec{PackFormat::int4}}) {
    const auto kernels = all_packed_kernels().back().kernels;
    const PackedMatrix w = packed_from(*kernels, spec, at::randn({50, columns}));
    const at::Tensor x = at::randn({30, columns}), values = reference_values(w).to(at::kDouble);
    const at::Tensor largest = x.view({30, columns / group, group}).abs().amax(2).to(at::kDouble);
    const at::Tensor bound = (largest / 254).mm(values.abs().view({50, columns / group, group}).sum(2).t());
    const at::Tensor error =
        (multiply(*kernels, x, w, at::kFloat, Activations::int8).to(at::kDouble) - x.to(at::kDouble).mm(values.t())).abs();
    EXPECT_TRUE(error.le(bound * (1 + 1e-4)).all().item<bool>()) << describe_spec(spec);
    EXPECT_GT(error.max().item<double>(), 0);
  }
}

TEST(PackedGemm, TransposedHasTheBitsOfTheDefinition) {
  const ThreadsScope threads(1);
  at::manual_seed(8);
  const auto all = all_packed_kernels();
  for (const PackSpec& spec : all_pack_specs()) {
    const int64_t columns = spec.format == PackFormat::panels ? 147 : 256;
    for (const int64_t rows : {1, 16, 17, 145}) {
      const PackedMatrix w = packed_from(*all[0].kernels, spec, at::randn({rows, columns}));
      for (const at::ScalarType dtype : kXDtypes) {
        const at::Tensor dy = at::randn({30, rows}).to(dtype), wanted = reference_gemm_transposed(dy, w);
        for (const auto& [name, kernels] : all) {
          for (const auto& [begin, m] : std::vector<std::array<int64_t, 2>>{{0, 30}, {29, 1}, {7, 3}}) {
            at::set_num_threads(rows == 145 && dtype == at::kFloat && m == 3 ? 2 : 1);
            const at::Tensor dx = at::full({m, columns}, std::numeric_limits<float>::quiet_NaN()).to(dtype);
            kernels->multiply_transposed(dy.narrow(0, begin, m), w, dx);
            EXPECT_TRUE(same_bits(dx, wanted.narrow(0, begin, m).to(dtype)))
                << name << ": " << describe_spec(spec) << ", " << m << " x " << rows << ", " << dtype_name(dtype);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace zt::test
