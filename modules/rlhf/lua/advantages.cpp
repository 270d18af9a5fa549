// Advantages of tokens and of answers, for scripts.
#include "advantages/advantages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <optional>

#include "open.h"
#include "zt/base/options.h"

namespace zt::rlhf {

namespace {

// Throws Misuse unless `tensor` is a vector of this type on the CPU.
void check_vector(const at::Tensor& tensor, at::ScalarType type, const char* what) {
  if (tensor.dim() != 1 || tensor.scalar_type() != type || !tensor.is_contiguous() || !tensor.is_cpu())
    misuse("rlhf.advantages: {} must be a vector of {} on the CPU", what, type == at::kLong ? "int64" : "float64");
}

std::span<double> doubles_of(const at::Tensor& tensor, const char* what) {
  check_vector(tensor, at::kDouble, what);
  return {tensor.data_ptr<double>(), static_cast<size_t>(tensor.numel())};
}

struct TokensCall {
  at::Tensor rewards, offsets;
  std::optional<at::Tensor> values;
  double gamma = 1, lambda = 1;
};
const auto kTokens = Schema<TokensCall>("rlhf.token_advantages")
                         .required("rewards", &TokensCall::rewards, "float64, of each token of all answers")
                         .required("offsets", &TokensCall::offsets, "int64, where each answer begins, and the number of tokens")
                         .optional("values", &TokensCall::values, "float64, of each token; none: sums of rewards")
                         .optional("gamma", &TokensCall::gamma, "discount per token", between(0, 1))
                         .optional("lambda", &TokensCall::lambda, "of the estimate", between(0, 1));

// rlhf.token_advantages{rewards =, offsets =, values =, gamma =, lambda =} -> float64, a number per token
int token_advantages(lua_State* L) {
  const TokensCall call = kTokens.parse(lua::check_value(L, 1));
  const auto rewards = doubles_of(call.rewards, "rewards");
  check_vector(call.offsets, at::kLong, "offsets");
  const std::span<const int64_t> offsets(call.offsets.const_data_ptr<int64_t>(), static_cast<size_t>(call.offsets.numel()));
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != std::ssize(rewards) || !std::ranges::is_sorted(offsets))
    misuse("rlhf.token_advantages: the offsets must ascend from 0 to the number of tokens, {}", rewards.size());
  const at::Tensor result = at::empty_like(call.rewards);
  const auto advantages = doubles_of(result, "advantages");
  std::span<const double> values;
  if (call.values) values = doubles_of(*call.values, "values");
  if (call.values && values.size() != rewards.size())
    misuse("rlhf.token_advantages: there are {} rewards and {} values", rewards.size(), values.size());
  for (size_t answer = 0; answer + 1 < offsets.size(); ++answer) {
    const auto begin = static_cast<size_t>(offsets[answer]), count = static_cast<size_t>(offsets[answer + 1]) - begin;
    const auto own = std::span<const double>(rewards).subspan(begin, count);
    if (call.values) {
      estimate_advantages(own, values.subspan(begin, count), call.gamma, call.lambda, advantages.subspan(begin, count));
    } else {
      sum_rewards(own, call.gamma, advantages.subspan(begin, count));
    }
  }
  lua::push(L, result);
  return 1;
}

struct GroupsCall {
  at::Tensor rewards, groups;
  bool others = false;
  AdvantageScale scale = AdvantageScale::none;
};
const auto kGroups =
    Schema<GroupsCall>("rlhf.group_advantages")
        .required("rewards", &GroupsCall::rewards, "float64, of each answer")
        .required("groups", &GroupsCall::groups, "int64, the number of its group")
        .optional("others", &GroupsCall::others, "subtract the mean of the others of the group in place of that of the group")
        .optional("scale", &GroupsCall::scale, "divide by the standard deviation of the group, of the batch, or of none");

// rlhf.group_advantages{rewards =, groups =, others =, scale =} -> float64, a number per answer; the number of groups whose
// answers have equal rewards
int advantages_of_groups(lua_State* L) {
  const GroupsCall call = kGroups.parse(lua::check_value(L, 1));
  const auto rewards = doubles_of(call.rewards, "rewards");
  check_vector(call.groups, at::kLong, "groups");
  if (call.groups.numel() != call.rewards.numel())
    misuse("rlhf.group_advantages: there are {} rewards and {} numbers of groups", call.rewards.numel(), call.groups.numel());
  int64_t equal = 0;
  const std::vector<double> advantages = group_advantages(rewards, {call.groups.const_data_ptr<int64_t>(), rewards.size()},
                                                          call.others ? Baseline::others : Baseline::mean, call.scale, &equal);
  lua::push(L, at::tensor(advantages, at::kDouble));
  lua::push(L, equal);
  return 2;
}

// rlhf.whitened(values) -> float64, (value - mean) / standard deviation
int whitened(lua_State* L) {
  const at::Tensor values = lua::check_tensor(L, 1).detach().to(at::kCPU, at::kDouble).contiguous().clone();
  whiten(doubles_of(values, "values"));
  lua::push(L, values);
  return 1;
}

}  // namespace

void open_advantages(lua::Module& module) {
  module.function<token_advantages>("token_advantages").function<advantages_of_groups>("group_advantages");
  module.function<whitened>("whitened");
}

}  // namespace zt::rlhf
