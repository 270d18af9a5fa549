// Tests how a router uses its selection: one of ours, or one that a program in C++ brings.
#include "routing/selection.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "routing/router.h"
#include "support/fake_context.h"
#include "zt/base/error.h"

namespace zt::test {
namespace {

using namespace moe;

RouterOptions router_of(Value::Table more) {
  more.merge(Value::Table{{"hidden", 8}, {"experts", 4}});
  return parse_router(more);
}

// Gives each token the expert of its number, and an empty route.
class ByNumber final : public Selection {
 public:
  std::string kind() const override { return "by number"; }
  at::Tensor select(const Candidates& candidates, Context&) const override {
    ++calls;
    const at::Tensor numbers = at::arange(candidates.samples * candidates.tokens, at::kLong).remainder(candidates.experts());
    return at::stack({numbers, at::full_like(numbers, -1)}, 1);
  }
  bool fits_capacity() const override { return fits; }

  mutable int calls = 0;
  bool fits = false;
};

struct Routes {
  at::Tensor weights, experts;
};

Routes run_router(const RouterOptions& options, FakeContext& context) {
  at::manual_seed(1);
  const auto router = make_router(options);
  for (const auto& param : router->params()) values_of(*param) = at::randn(param->shape);
  auto out = router->forward({at::randn({2, 4, 8})}, context);
  return {out[0], out[1]};
}

TEST(Selection, OfOptions) {
  EXPECT_EQ(make_selection(router_of({}))->kind(), "top_k");
  EXPECT_EQ(make_selection(router_of({{"routes", "balanced"}}))->kind(), "balanced");
  EXPECT_EQ(make_selection(router_of({{"routes", "field"}}))->kind(), "recorded");
  const auto by_experts = make_selection(router_of({{"choice", "expert"}, {"capacity", Value::Table{}}}));
  EXPECT_EQ(by_experts->kind(), "expert choice");
  EXPECT_EQ(by_experts->routes(router_of({})), 4);
  EXPECT_TRUE(by_experts->fits_capacity());
}

TEST(Selection, OfAProgramRoutesTokensAndIsNotAskedAgainInARecompute) {
  RouterOptions options = router_of({});
  const auto own = std::make_shared<ByNumber>();
  options.select = own;
  FakeContext context;
  const Routes routes = run_router(options, context);
  const at::Tensor wanted = at::tensor({0, 1, 2, 3, 0, 1, 2, 3}, at::kLong).view({2, 4});
  EXPECT_TRUE(routes.experts.select(2, 0).equal(wanted));
  EXPECT_TRUE(routes.experts.select(2, 1).eq(-1).all().item<bool>());
  EXPECT_TRUE(routes.weights.select(2, 0).gt(0).all().item<bool>());
  EXPECT_TRUE(routes.weights.select(2, 1).eq(0).all().item<bool>());
  context.recompute = true;
  EXPECT_TRUE(run_router(options, context).experts.equal(routes.experts));
  EXPECT_EQ(own->calls, 1);
}

// Without room for half of the tokens, the capacity drops them, unless the selection says that it fits.
TEST(Selection, IsBoundByTheCapacityUnlessItFits) {
  RouterOptions options = router_of({{"capacity", Value::Table{{"train", 0.1}, {"min", 1}, {"per", "micro_batch"}}}});
  const auto own = std::make_shared<ByNumber>();
  options.select = own;
  FakeContext context;
  EXPECT_EQ(run_router(options, context).experts.ge(0).sum().item<int64_t>(), 4);
  own->fits = true;
  EXPECT_EQ(run_router(options, context).experts.ge(0).sum().item<int64_t>(), 8);
}

TEST(Selection, OfRoutesIsChecked) {
  const at::Tensor scores = at::zeros({8, 4}), counted;
  const Candidates candidates{scores, scores, counted, 2, 4, 2};
  const auto check = [&](const at::Tensor& experts) { check_routes(experts, candidates.sizes(), "these"); };
  check(at::full({2, 4, 2}, -1, at::kLong));
  check(at::tensor({3, 0}, at::kLong).expand({2, 4, 2}));
  EXPECT_THROW(check(at::full({2, 4, 2}, 3, at::kLong)), Misuse);
  EXPECT_THROW(check(at::full({2, 4, 2}, 4, at::kLong)), Misuse);
  EXPECT_THROW(check(at::full({2, 4, 2}, -2, at::kLong)), Misuse);
  EXPECT_THROW(check(at::full({2, 4, 3}, 0, at::kLong)), Misuse);
  EXPECT_THROW(check(at::full({2, 4, 2}, 0, at::kInt)), Misuse);
}

}  // namespace
}  // namespace zt::test
