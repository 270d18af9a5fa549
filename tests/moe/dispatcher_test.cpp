// Tests what dispatchers say of themselves. exact_test.cpp compares models that use them.
#include "exchange/dispatcher.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "zt/base/error.h"
#include "zt/model/model.h"

namespace zt::test {
namespace {

using namespace moe;

ExchangeOptions exchange_of(const std::string& kind, int ranks = 2, int64_t experts = 4) {
  ExchangeOptions options;
  options.experts = experts;
  options.hidden = 8;
  options.axis = "ep";
  options.ranks = ranks;
  options.dispatcher = kind;
  return options;
}

at::Tensor own_tokens() {
  return at::zeros({2, 3, 8});
}
at::Tensor own_routes() {
  return at::zeros({2, 3, 2}, at::kLong);
}
at::Tensor own_weights() {
  return at::zeros({2, 3, 2});
}

// Of 12 rows that go to all ranks alike, half go to the other rank: 6 rows of 8 floats.
TEST(Dispatcher, PlansAnAllToAll) {
  const auto dispatcher = make_dispatcher(exchange_of("all_to_all"));
  const PlannedExchange there = dispatcher->plan_dispatch({12, 20}, own_tokens(), own_routes());
  EXPECT_EQ(there.forward_bytes, 6 * 8 * 4);
  EXPECT_EQ(there.backward_bytes, 10 * 8 * 4);
  EXPECT_EQ(there.buffers, (std::vector<int64_t>{12, 20}));
  EXPECT_EQ(there.kept, 0);
  const PlannedExchange back = dispatcher->plan_combine({12, 20}, own_tokens(), own_weights());
  EXPECT_EQ(back.forward_bytes, 10 * 8 * 4);
  EXPECT_EQ(back.backward_bytes, 6 * 8 * 4);
  EXPECT_EQ(back.kept, 12);
  const auto one_expert = make_dispatcher(exchange_of("all_to_all", 2, 2));
  EXPECT_EQ(one_expert->plan_dispatch({12, 20}, own_tokens(), own_routes()).buffers, std::vector<int64_t>{12});
  EXPECT_EQ(dispatcher->ordered_ranks(), 1);
  EXPECT_EQ(dispatcher->sizes_of(own_routes(), at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kLong)).rows, 5 + 6 + 7 + 8);
}

// Each of 3 ranks sends its 6 tokens, and 12 routes of 8 bytes, to the two others.
TEST(Dispatcher, PlansAnAllGather) {
  const auto dispatcher = make_dispatcher(exchange_of("all_gather", 3, 3));
  const PlannedExchange there = dispatcher->plan_dispatch({12, 20}, own_tokens(), own_routes());
  EXPECT_EQ(there.forward_bytes, 2 * (6 * 8 * 4 + 12 * 8));
  EXPECT_EQ(there.backward_bytes, 2 * 6 * 8 * 4);
  EXPECT_EQ(there.buffers, std::vector<int64_t>{18});
  EXPECT_EQ(there.kept, 18);
  const PlannedExchange back = dispatcher->plan_combine({12, 20}, own_tokens(), own_weights());
  EXPECT_EQ(back.forward_bytes, 2 * (6 * 8 * 4 + 12 * 4));
  EXPECT_EQ(back.backward_bytes, back.forward_bytes);
  EXPECT_EQ(back.kept, 0);
  EXPECT_EQ(dispatcher->ordered_ranks(), 3);
  const ReturningSizes sizes = dispatcher->sizes_of(at::zeros({18, 2}, at::kLong), at::tensor({4, 5, 6}, at::kLong));
  EXPECT_EQ(sizes.rows, 9);
  EXPECT_EQ(sizes.tokens, 6);
  EXPECT_EQ(sizes.routes, 2);
}

TEST(Dispatcher, OfOneRankSendsNothing) {
  for (const std::string& kind : dispatcher_names()) {
    const auto dispatcher = make_dispatcher(exchange_of(kind, 1));
    EXPECT_EQ(dispatcher->options().dispatcher, kind);
    const PlannedExchange there = dispatcher->plan_dispatch({12, 12}, own_tokens(), own_routes());
    EXPECT_EQ(there.forward_bytes, 0);
    EXPECT_TRUE(there.buffers.empty());
    EXPECT_EQ(dispatcher->plan_combine({12, 12}, own_tokens(), own_weights()).kept, 0);
  }
}

// Outputs the tokens and routes of a dispatch, and the weights of a combine.
class TokenSource final : public Layer {
 public:
  std::vector<at::Tensor> forward(at::TensorList, Context&) override { return {own_tokens(), own_routes(), own_weights()}; }
  Io io() const override { return {.inputs = {}, .outputs = {{"h"}, {"route_experts", false}, {"route_weights"}}}; }
  std::string kind() const override { return "source"; }
};

std::string refusal(const ExchangeOptions& there, const ExchangeOptions& back) {
  try {
    Model({{"source", std::make_shared<TokenSource>()}, {"dispatch", make_dispatch(there)}, {"combine", make_combine(back)}}, 1);
  } catch (const Misuse& error) {
    return error.what();
  }
  return {};
}

TEST(Dispatcher, OfADispatchAndACombineAreOfOneKind) {
  for (const int ranks : {1, 2}) {
    const ExchangeOptions by_rows = exchange_of("all_to_all", ranks), by_tokens = exchange_of("all_gather", ranks);
    EXPECT_EQ(refusal(by_rows, by_rows), "");
    EXPECT_EQ(refusal(by_tokens, by_tokens), "");
    EXPECT_EQ(refusal(by_rows, by_tokens),
              fmt::format("'combine' ({}combine): it has dispatcher = 'all_gather', and the dispatch that sent the tokens has "
                          "'all_to_all': give moe.dispatch and moe.combine the same",
                          ranks > 1 ? "gather_" : ""));
    EXPECT_NE(refusal(by_tokens, by_rows), "");
  }
}

}  // namespace
}  // namespace zt::test
