#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "support.h"
#include "tensor/muon.h"
#include "zt/base/error.h"
#include "zt/model/param_groups.h"

namespace zt::optim::test {
namespace {

CommonOptions options_of(Value::List entries, bool decay_all = false) {
  CommonOptions options;
  options.lr = 1;
  options.weight_decay = 0.1;
  options.decay_all = decay_all;
  options.groups = std::move(entries);
  return options;
}

ParamGroup group_for(const GroupTable& table, const std::string& name, bool is_matrix = true) {
  ParamInfo param = param_named(name);
  param.is_matrix = is_matrix;
  return table.at(table.group_of(param));
}

TEST(Groups, NormsAndBiasesAreNotDecayedByDefault) {
  const GroupTable table("optim.adamw", options_of({}));
  EXPECT_EQ(group_for(table, "a.weight").weight_decay, 0.1);
  EXPECT_EQ(group_for(table, "a.bias", false).weight_decay, 0);
  EXPECT_EQ(group_for(table, "a.bias", false).lr_scale, 1);
  const GroupTable all("optim.adamw", options_of({}, true));
  EXPECT_EQ(group_for(all, "a.bias", false).weight_decay, 0.1);
}

TEST(Groups, FrozenParametersHaveNone) {
  const GroupTable table("optim.adamw", options_of({Value::Table{{"match", "."}}}));
  ParamInfo param = param_named("a");
  EXPECT_EQ(table.group_of(param), 2);
  param.trainable = false;
  EXPECT_EQ(table.group_of(param), -1);
}

TEST(Groups, TheFirstMatchWins) {
  const GroupTable table("optim.adamw", options_of({Value::Table{{"match", "^blocks\\.0\\."}, {"lr_scale", 0.5}},
                                                    Value::Table{{"match", "weight$"}, {"weight_decay", 0.7}},
                                                    Value::Table{{"match", "blocks"}, {"lr_scale", 2}, {"weight_decay", 0.2}}}));
  EXPECT_EQ(group_for(table, "blocks.0.weight").lr_scale, 0.5);
  EXPECT_EQ(group_for(table, "blocks.0.weight").weight_decay, 0.1);     // not given: the default
  EXPECT_EQ(group_for(table, "blocks.0.bias", false).weight_decay, 0);  // not given: the default for biases
  EXPECT_EQ(group_for(table, "blocks.10.weight").lr_scale, 1);
  EXPECT_EQ(group_for(table, "blocks.10.weight").weight_decay, 0.7);
  EXPECT_EQ(group_for(table, "blocks.10.bias", false).lr_scale, 2);
  EXPECT_EQ(group_for(table, "blocks.10.bias", false).weight_decay, 0.2);  // given: for biases, too
  EXPECT_EQ(group_for(table, "head").weight_decay, 0.1);
}

TEST(Groups, AnEntryWithoutParametersIsRefused) {
  ModelInfo model;
  model.params = {param_named("blocks.0.weight"), param_named("head.weight")};
  const auto refusal = [&](Value::List entries) {
    return complaint([&] { GroupTable("optim.adamw", options_of(std::move(entries))).check(model); });
  };
  EXPECT_EQ(refusal({Value::Table{{"match", "^blocks"}}, Value::Table{{"match", "weight$"}}}), "");
  EXPECT_NE(refusal({Value::Table{{"match", "^block\\."}}}).find("optim.adamw.groups[1].match: no trainable parameter"),
            std::string::npos);
  // The first entry matches all names that the second matches.
  EXPECT_NE(refusal({Value::Table{{"match", "weight"}}, Value::Table{{"match", "head"}}}).find("groups[2]"), std::string::npos);
  model.params[1].trainable = false;
  EXPECT_NE(refusal({Value::Table{{"match", "head"}}}).find("groups[1]"), std::string::npos);
}

TEST(Groups, ErrorsNameTheEntry) {
  const auto build = [](Value entry) {
    return complaint([&] { GroupTable("optim.lion", options_of({Value::Table{{"match", "a"}}, entry})); });
  };
  EXPECT_NE(build(Value::Table{{"match", "a["}}).find("optim.lion.groups[2].match: 'a['"), std::string::npos);
  EXPECT_NE(build(Value::Table{{"lr_scale", 1}}).find("optim.lion.groups[2]: option 'match' is missing"), std::string::npos);
  EXPECT_NE(build(Value::Table{{"match", "a"}, {"lr_skale", 1}}).find("did you mean 'lr_scale'"), std::string::npos);
  EXPECT_NE(build(Value::Table{{"match", "a"}, {"weight_decay", -1}}).find("groups[2].weight_decay must be at least 0"),
            std::string::npos);
  EXPECT_NE(build(Value(3)).find("groups[2] must be a table"), std::string::npos);
}

TEST(Options, OutOfRangeIsRefusedWithThePath) {
  const auto error = [](Make make, Value::Table options) { return complaint([&] { make(options, best_isa()); }); };
  EXPECT_NE(error(make_adamw, {}).find("optim.adamw: option 'lr' is missing"), std::string::npos);
  EXPECT_NE(error(make_adamw, {{"lr", -1}}).find("optim.adamw.lr must be at least 0"), std::string::npos);
  EXPECT_NE(error(make_adam, {{"lr", 1}, {"eps", 0}}).find("optim.adam.eps must be above 0"), std::string::npos);
  EXPECT_NE(error(make_adam, {{"lr", 1}, {"betas", Value::List{0.9}}}).find("optim.adam.betas must be two numbers"),
            std::string::npos);
  EXPECT_NE(error(make_lion, {{"lr", 1}, {"betas", Value::List{0.9, 1.0}}}).find("optim.lion.betas"), std::string::npos);
  EXPECT_NE(error(make_sgd, {{"lr", 1}, {"momentun", 0.9}}).find("did you mean 'momentum'"), std::string::npos);
  EXPECT_NE(error(make_sgd, {{"lr", 1}, {"nesterov", true}}).find("optim.sgd.nesterov needs momentum"), std::string::npos);
  EXPECT_NE(error(make_sgd, {{"lr", 1}, {"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.1}}).find("dampening = 0.1"),
            std::string::npos);
}

TEST(Options, DefaultsArePyTorchs) {
  const auto adamw = make_adamw(Value::Table{{"lr", 0.1}}), adam = make_adam(Value::Table{{"lr", 0.1}});
  EXPECT_EQ(adamw->kind(), "adamw");
  EXPECT_EQ(adamw->lr(), 0.1);
  EXPECT_EQ(adamw->scope(ParamInfo{}), Scope::element);
  EXPECT_EQ(adam->state_names(), (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
  EXPECT_TRUE(make_sgd(Value::Table{{"lr", 0.1}})->state_names().empty());
  // With a zero gradient only the decay moves a parameter: 0.01 by default for AdamW, none for Adam.
  for (const auto& [optimizer, expected] : {std::pair{adamw, 1 - 0.1 * 0.01}, {adam, 1.0}}) {
    FlatState shard = shard_of(*optimizer, at::ones({1}, at::kDouble));
    optimizer->step(shard, at::zeros({1}, at::kDouble), whole(shard), {.lr = 0.1});
    EXPECT_DOUBLE_EQ(shard.master.item<double>(), expected);
  }
}

// AdamW's rate follows the schedule in proportion to Muon's own.
TEST(Groups, MuonNeedsARateBesideThatOfAdamW) {
  const auto make = [](double lr) {
    return make_muon(Value::Table{{"lr", lr}, {"adamw", Value::Table{{"lr", 0.1}}}}, Isa::plain);
  };
  EXPECT_EQ(make(0.01)->lr(), 0.01);
  EXPECT_THROW(make(0), Misuse);
}

}  // namespace
}  // namespace zt::optim::test
