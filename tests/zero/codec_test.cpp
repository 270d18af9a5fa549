// Codes of gradients: what they say, and what they leave.
#include "compress/codec.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "zt/base/error.h"

namespace zt::zero {
namespace {

const Codec* const kCodecs[] = {&int8_codec(), &onebit_codec()};

at::Tensor codes_for(const Codec& codec, int64_t numel) {
  return at::zeros({numel / kCodeBlock * codec.block_bytes()}, at::kByte);
}

TEST(Codec, CodesAndTheRestAreTheValues) {
  for (const Codec* codec : kCodecs) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t numel : {int64_t{0}, kCodeBlock, 33 * kCodeBlock}) {
        const at::Tensor values = at::randn({numel}, dtype) * 1e-3, rest = values.clone(), bytes = codes_for(*codec, numel);
        codec->encode(rest, bytes);
        at::Tensor sum = rest.clone();
        codec->decode_add(bytes, sum);
        const double bound = dtype == at::kFloat ? 1e-9 : 1e-17;
        EXPECT_TRUE(((sum - values).abs() <= bound).all().item<bool>());
      }
    }
  }
}

TEST(Codec, EveryInstructionSetGivesTheSameBits) {
  for (const Codec* codec : kCodecs) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const int64_t numel = 9 * kCodeBlock;
      const at::Tensor values = at::randn({numel}, dtype);
      values.narrow(0, kCodeBlock, 300).zero_();
      const auto coded_as = [&](Isa isa) {
        const at::Tensor rest = values.clone(), bytes = codes_for(*codec, numel), decoded = at::zeros_like(values);
        codec->encode(rest, bytes, isa);
        codec->decode_add(bytes, decoded, isa);
        return std::tuple(bytes, rest, decoded);
      };
      const auto [bytes, rest, decoded] = coded_as(Isa::plain);
      for (const Isa isa : supported_isas()) {
        const auto [other_bytes, other_rest, other_decoded] = coded_as(isa);
        EXPECT_TRUE(at::equal(bytes, other_bytes) && at::equal(rest, other_rest) && at::equal(decoded, other_decoded))
            << isa_name(isa);
      }
    }
  }
}

TEST(Codec, Int8RoundsToTheNearestStep) {
  const at::Tensor values = at::linspace(-1.27, 1.27, kCodeBlock, at::kDouble), rest = values.clone();
  int8_codec().encode(rest, codes_for(int8_codec(), kCodeBlock));
  EXPECT_LE(rest.abs().max().item<double>(), 0.005 + 1e-7);
  EXPECT_LE(std::abs(rest[0].item<double>()), 1e-7) << "the largest has no error";
}

TEST(Codec, OneBitKeepsSignsAndTheMean) {
  at::Tensor values = at::zeros({kCodeBlock}, at::kFloat), decoded = at::zeros({kCodeBlock}, at::kFloat);
  values.narrow(0, 0, 64).fill_(-4);
  values.narrow(0, 64, 192).fill_(1);
  const at::Tensor bytes = codes_for(onebit_codec(), kCodeBlock);
  onebit_codec().encode(values, bytes);
  onebit_codec().decode_add(bytes, decoded);
  EXPECT_TRUE((decoded.narrow(0, 0, 64) == -1.75).all().item<bool>());
  EXPECT_TRUE((decoded.narrow(0, 64, 192) == 1.75).all().item<bool>());
}

TEST(Codec, ZerosStayZeros) {
  for (const Codec* codec : kCodecs) {
    const at::Tensor values = at::zeros({kCodeBlock}, at::kFloat), bytes = codes_for(*codec, kCodeBlock);
    codec->encode(values, bytes);
    EXPECT_EQ(values.abs().max().item<float>(), 0);
    codec->decode_add(bytes, values);
    EXPECT_EQ(values.abs().max().item<float>(), 0);
  }
}

TEST(Codec, RefusesPartsOfBlocks) {
  const at::Tensor values = at::zeros({100}, at::kFloat);
  EXPECT_THROW(int8_codec().encode(values, at::zeros({260}, at::kByte)), Misuse);
  EXPECT_THROW(int8_codec().encode(at::zeros({kCodeBlock}), at::zeros({36}, at::kByte)), Misuse);
}

}  // namespace
}  // namespace zt::zero
