// zero.compress: sends gradients in fewer bytes. What a rank does not send it adds to its next gradient (error feedback), so
// nothing is lost: what the ranks have sent plus what they keep is the sum of their gradients.
// T. Vogels, S. P. Karimireddy, M. Jaggi: PowerSGD: Practical low-rank gradient compression for distributed optimization. NeurIPS
// 2019. F. Seide, H. Fu, J. Droppo, G. Li, D. Yu: 1-bit stochastic gradient descent and its application to data-parallel
// distributed training of speech DNNs. Interspeech 2014.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "zt/base/value.h"
#include "zt/program/rank_program.h"

namespace zt::zero {

enum class Compression : uint8_t {
  powersgd,  // matrices as products of two thin ones
  int8,      // a byte per element, with a scale per block of 256
  onebit,    // the sign, with a scale per block of 256
};
constexpr auto words_of(Compression) {
  return std::array{"powersgd", "int8", "onebit"};
}

struct CompressOptions {
  Compression kind = Compression::powersgd;
  int rank = 4;      // of powersgd: columns of the thin matrices
  int64_t seed = 0;  // of powersgd: of the first thin matrices
};

// Throws Misuse for an unknown key, a wrong type or a value out of range.
CompressOptions parse_compress_options(const Value& options);

// Returns the pass, which lets REDUCE_GRAD compress. It throws Misuse if zero.shard sends gradients in another type than it sums
// them in.
std::shared_ptr<Pass> make_compress(const CompressOptions& options);

}  // namespace zt::zero
