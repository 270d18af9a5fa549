// Tests the format nf4 against bitsandbytes: tests/oracle/make_packed.py.
#include "packed/nf4/nf4.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "gemm/packed/packed_reference.h"
#include "support/golden.h"
#include "support/message.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/nf4.h"
#include "zt/gemm/packed_stack.h"

namespace zt::test {
namespace {

const PackSpec kNf4{PackFormat::nf4, 64, false, at::kBFloat16};
const PackSpec kFlatNf4{PackFormat::nf4, 64, false, at::kBFloat16, Activations::floating, false};
constexpr std::array kNf4Matrices{"one", "row", "panels", "blocks"};

// Returns a matrix as bitsandbytes stores it, from what pack() makes of it.
Nf4Tensors tensors_of_packed(const at::Tensor& values, bool is_nested) {
  const PackSpec& spec = is_nested ? kNf4 : kFlatNf4;
  const PackedMatrix packed = packed_from(*all_packed_kernels().back().kernels, spec, values);
  const UnpackedCodes read(packed);
  const int64_t rows = packed.rows, columns = packed.columns, groups = columns / 64;
  const at::Tensor codes = at::zeros({rows * columns / 2}, at::kByte),
                   map = at::from_blob(const_cast<float*>(packed::nf4_codes().data()), {16}, at::kFloat);
  auto* const pairs = codes.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < rows * columns; ++i) {
    const auto code = std::ranges::find(packed::nf4_codes(), read.codes[static_cast<size_t>(i)]) - packed::nf4_codes().begin();
    pairs[i / 2] = static_cast<uint8_t>(pairs[i / 2] | code << (i % 2 == 0 ? 4 : 0));
  }
  if (!is_nested) return {rows, codes, at::tensor(at::ArrayRef<float>(read.scales)), map.clone(), {}, {}};
  const int64_t panels = (rows + 15) / 16, group_bytes = 64 * 8 + 16, blocks = (rows * groups + 255) / 256;
  const at::Tensor absmax = at::empty({rows * groups}, at::kByte),
                   tables = packed.bytes.narrow(0, panels * groups * group_bytes, (256 + 2 * blocks) * 4).view(at::kFloat);
  for (int64_t i = 0; i < rows * groups; ++i)
    absmax[i] = packed.bytes[(i / groups / 16 * groups + i % groups) * group_bytes + 64 * 8 + i / groups % 16];
  const at::Tensor pairs_of_blocks = tables.narrow(0, 256, 2 * blocks).view({blocks, 2});
  return {rows,
          codes,
          absmax,
          map.clone(),
          pairs_of_blocks.select(1, 0).contiguous(),
          tables.narrow(0, 0, 256).contiguous(),
          pairs_of_blocks[0][1].item<double>()};
}

class Nf4Golden : public testing::Test {
 protected:
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name); }

  Nf4Tensors stored(const std::string& name) const {
    return {tensor(name + ".weight").size(0),
            tensor(name + ".codes"),
            tensor(name + ".absmax"),
            tensor(name + ".quant_map"),
            tensor(name + ".nested_absmax"),
            tensor(name + ".nested_quant_map"),
            tensor(name + ".nested_offset").item<double>()};
  }
  Nf4Tensors stored_flat(const std::string& name) const {
    return {tensor(name + ".weight").size(0),
            tensor(name + ".flat_codes"),
            tensor(name + ".flat_absmax"),
            tensor(name + ".quant_map"),
            {},
            {}};
  }
  PackedMatrix matrix_for(const std::string& name, const PackSpec& spec = kNf4) const {
    const at::Tensor weight = tensor(name + ".weight");
    return make_packed(*kernels_, spec, weight.size(0), weight.size(1));
  }
  void import(const Nf4Tensors& from, const PackedMatrix& into) const { kernels_->import_nf4({&from, 1}, into); }

  const ThreadsScope threads_{1};
  const std::map<std::string, at::Tensor> tensors_ = golden("packed");
  const std::shared_ptr<const PackedKernels> kernels_ = all_packed_kernels().back().kernels;
};

TEST_F(Nf4Golden, TheMapIsThatOfBitsandbytes) {
  const auto& map = packed::nf4_scale_map();
  const at::Tensor wanted = tensor("nf4_map");
  for (int64_t i = 0; i < 256; ++i) EXPECT_EQ(map[static_cast<size_t>(i)], wanted[i].item<float>()) << i;
}

TEST_F(Nf4Golden, ReadsMatricesWithoutAChangeOfValue) {
  for (const std::string name : kNf4Matrices) {
    const PackedMatrix matrix = matrix_for(name);
    import(stored(name), matrix);
    for (const auto& [_, kernels] : all_packed_kernels()) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
        EXPECT_TRUE(kernels->unpack(matrix, dtype).equal(tensor(name + "." + dtype_name(dtype))))
            << name << " " << dtype_name(dtype);
    }
    EXPECT_TRUE(reference_values(matrix).equal(tensor(name + ".float32"))) << name;
  }
}

// A single group has scale 0 beside the offset, so that every code has the same value: bitsandbytes rounds 0 / 0 to some code.
TEST_F(Nf4Golden, PacksTheSameBytes) {
  for (const std::string name : kNf4Matrices) {
    const PackedMatrix wanted = matrix_for(name), got = matrix_for(name);
    import(stored(name), wanted);
    kernels_->pack(tensor(name + ".weight"), got);
    EXPECT_TRUE(kernels_->unpack(got, at::kFloat).equal(tensor(name + ".float32"))) << name;
    if (name == "one") continue;
    EXPECT_TRUE(got.bytes.equal(wanted.bytes)) << name << ": " << got.bytes.ne(wanted.bytes).nonzero().view(-1);
  }
}

TEST_F(Nf4Golden, RefusesWhatDoesNotFit) {
  const PackedMatrix matrix = matrix_for("row");
  Nf4Tensors from = stored("row");
  from.absmax = from.absmax.narrow(0, 1, 8);
  EXPECT_THROW(import(from, matrix), Misuse);
  from = stored("row");
  from.nested_absmax = at::full({1}, std::numeric_limits<float>::infinity());
  EXPECT_THROW(import(from, matrix), Fault);
  from = stored("row");
  from.nested_offset = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(import(from, matrix), Fault);
  from = stored("row");
  from.quant_map = from.quant_map.flip(0).contiguous();
  EXPECT_THROW(import(from, matrix), Fault);
  EXPECT_THROW(import(stored("row"), make_packed(*kernels_, {PackFormat::int4}, 3, 192)), Misuse);
  EXPECT_THROW(import(stored_flat("row"), matrix), Misuse);
  EXPECT_THROW(import(stored("row"), matrix_for("panels")), Misuse);
}

TEST_F(Nf4Golden, MultipliesNestedScalesOutWithoutAChangeOfValue) {
  for (const std::string name : kNf4Matrices) {
    const PackedMatrix matrix = matrix_for(name, kFlatNf4);
    import(stored(name), matrix);
    EXPECT_TRUE(kernels_->unpack(matrix, at::kFloat).equal(tensor(name + ".float32"))) << name;
  }
}

TEST_F(Nf4Golden, ReadsMatricesWithoutNestedScales) {
  for (const std::string name : kNf4Matrices) {
    const PackedMatrix matrix = matrix_for(name, kFlatNf4), packed = matrix_for(name, kFlatNf4);
    import(stored_flat(name), matrix);
    EXPECT_TRUE(kernels_->unpack(matrix, at::kFloat).equal(tensor(name + ".flat_float32"))) << name;
    kernels_->pack(tensor(name + ".weight"), packed);
    EXPECT_TRUE(packed.bytes.equal(matrix.bytes)) << name;
    const std::vector<Share> rows{{0, 1}, {matrix.rows / 2, matrix.rows - matrix.rows / 2}};
    const PackedMatrix part = kernels_->cut(matrix, rows, {0, 64});
    const at::Tensor values = tensor(name + ".flat_float32").narrow(1, 0, 64);
    EXPECT_TRUE(kernels_->unpack(part, at::kFloat)
                    .equal(at::cat({values.narrow(0, 0, 1), values.narrow(0, rows[1].begin, rows[1].count)})));
  }
}

// Two matrices that were quantised apart have offsets of their own.
TEST_F(Nf4Golden, JoinsMatrices) {
  const at::Tensor weight = at::randn({100, 640}), more = at::randn({7, 640}) * 3;
  for (const auto& [spec, rows] : {std::pair(kNf4, 128), std::pair(kFlatNf4, 100)}) {
    const at::Tensor first = at::constant_pad_nd(weight, {0, 0, 0, rows - 100}).contiguous();
    const bool is_nested = spec.nested;
    const auto apart = [&, &spec = spec](const at::Tensor& values) {
      const PackedMatrix packed = packed_from(*kernels_, spec, values);
      return kernels_->unpack(packed, at::kFloat);
    };
    const auto tensors_of = [&](const at::Tensor& values) { return tensors_of_packed(values, is_nested); };
    const std::vector<Nf4Tensors> parts{tensors_of(first), tensors_of(more)};
    const PackedMatrix joined = make_packed(*kernels_, spec, rows + 7, 640);
    kernels_->import_nf4(parts, joined);
    EXPECT_TRUE(kernels_->unpack(joined, at::kFloat).equal(at::cat({apart(first), apart(more)})));
    EXPECT_TRUE(reference_values(joined).equal(at::cat({apart(first), apart(more)})));
  }
  const std::vector<Nf4Tensors> uneven{tensors_of_packed(weight, true), tensors_of_packed(more, true)};
  EXPECT_THROW(kernels_->import_nf4(uneven, make_packed(*kernels_, kNf4, 107, 640)), Misuse);
}

}  // namespace
}  // namespace zt::test
