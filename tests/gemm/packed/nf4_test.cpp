// Tests the format nf4 against bitsandbytes: tests/oracle/make_packed.py.
#include "packed/nf4.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "gemm/packed/packed_reference.h"
#include "support/golden.h"
#include "support/message.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::test {
namespace {

const PackSpec kNf4{PackFormat::nf4, 64, false, at::kBFloat16};
constexpr std::array kNf4Matrices{"one", "row", "panels", "blocks"};

class Nf4Golden : public testing::Test {
 protected:
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name); }

  packed::Nf4Tensors stored(const std::string& name) const {
    return {tensor(name + ".codes"),         tensor(name + ".absmax"),           tensor(name + ".quant_map"),
            tensor(name + ".nested_absmax"), tensor(name + ".nested_quant_map"), tensor(name + ".nested_offset").item<double>()};
  }
  PackedMatrix matrix_for(const std::string& name) const {
    const at::Tensor weight = tensor(name + ".weight");
    return make_packed(*kernels_, kNf4, weight.size(0), weight.size(1));
  }

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
    packed::import_nf4(stored(name), matrix);
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
    packed::import_nf4(stored(name), wanted);
    kernels_->pack(tensor(name + ".weight"), got);
    EXPECT_TRUE(kernels_->unpack(got, at::kFloat).equal(tensor(name + ".float32"))) << name;
    if (name == "one") continue;
    EXPECT_TRUE(got.bytes.equal(wanted.bytes)) << name << ": " << got.bytes.ne(wanted.bytes).nonzero().view(-1);
  }
}

TEST_F(Nf4Golden, RefusesWhatDoesNotFit) {
  const PackedMatrix matrix = matrix_for("row");
  packed::Nf4Tensors from = stored("row");
  from.absmax = from.absmax.narrow(0, 1, 8);
  EXPECT_THROW(packed::import_nf4(from, matrix), Misuse);
  from = stored("row");
  from.nested_absmax = at::full({1}, std::numeric_limits<float>::infinity());
  EXPECT_THROW(packed::import_nf4(from, matrix), Fault);
  from = stored("row");
  from.nested_offset = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(packed::import_nf4(from, matrix), Fault);
  from = stored("row");
  from.quant_map = from.quant_map.flip(0).contiguous();
  EXPECT_THROW(packed::import_nf4(from, matrix), Fault);
  EXPECT_THROW(packed::import_nf4(stored("row"), make_packed(*kernels_, {PackFormat::int4}, 3, 192)), Misuse);
}

}  // namespace
}  // namespace zt::test
