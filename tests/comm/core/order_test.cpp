// Sums follow the fixed tree over the ranks, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "comm/support/ranks.h"

namespace zt::test {

namespace {

// Returns numbers of very different size and both signs, so that any other order of additions changes some bits.
at::Tensor wild(int rank, int64_t n, at::ScalarType dtype) {
  std::mt19937 engine(1000u + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-6, 6);
  auto tensor = at::empty({n}, at::kFloat);
  float* data = tensor.data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) data[i] = std::ldexp(normal(engine), exponent(engine));
  return tensor.to(dtype);
}

// Returns T(a, b) of reduce_tree.h for one element.
template <class T>
T by_hand(const std::vector<T>& values, size_t a, size_t b) {
  if (b - a == 1) return values[a];
  size_t half = 1;
  while (half * 2 < b - a) half *= 2;
  return by_hand(values, a, a + half) + by_hand(values, a + half, b);
}

// Returns the sum over all ranks along the tree. 16-bit types are added in fp32 and rounded once at the end.
at::Tensor tree_by_hand(int size, int64_t n, at::ScalarType dtype) {
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> inputs;
  for (int r = 0; r < size; ++r) inputs.push_back(wild(r, n, dtype).to(wide));
  auto out = at::empty({n}, wide);
  AT_DISPATCH_FLOATING_TYPES(wide, "tree_by_hand", [&] {
    for (int64_t i = 0; i < n; ++i) {
      std::vector<scalar_t> values;
      for (const auto& input : inputs) values.push_back(input.data_ptr<scalar_t>()[i]);
      out.data_ptr<scalar_t>()[i] = by_hand(values, 0, values.size());
    }
  });
  return out.to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

TEST(Order, SumsAreTheTreeBitForBit) {
  on_ranks([](Communicator& comm) {
    // The short tensor takes the one-round algorithm, the long one is split into unequal segments.
    for (const int64_t n : {int64_t{100}, int64_t{60013}}) {
      for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
        SCOPED_TRACE(label(comm, dtype, n));
        auto inout = wild(comm.rank(), n, dtype);
        comm.all_reduce(inout, inout);
        EXPECT_TRUE(same_bits(inout, tree_by_hand(comm.size(), n, dtype)));
        auto at_root = wild(comm.rank(), n, dtype);
        comm.reduce(at_root, at_root, 0);
        if (comm.rank() == 0) {
          EXPECT_TRUE(same_bits(at_root, inout));
        }
        const int64_t total = n * comm.size();
        auto part = at::empty({n}, dtype);
        comm.reduce_scatter(part, wild(comm.rank(), total, dtype));
        EXPECT_TRUE(same_bits(part, part_of(tree_by_hand(comm.size(), total, dtype), comm.rank(), comm.size())));
      }
    }
  });
}

TEST(Order, SixteenBitSumsRoundOnce) {
  on_ranks([](Communicator& comm) {
    if (comm.size() < 3) return;
    // 256 + 1 + 1: bf16 has 8 bits, so adding in bf16 would stay at 256; the exact 258 is a bf16 number.
    auto value = at::full({1}, comm.rank() == 0 ? 256 : comm.rank() <= 2 ? 1 : 0, at::kBFloat16);
    comm.all_reduce(value, value);
    EXPECT_EQ(value.to(at::kFloat).item<float>(), 258);
  });
}

}  // namespace

}  // namespace zt::test
