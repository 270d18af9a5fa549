// Compares the log-probabilities of an engine with those of the trainer's own forward over the whole text.
#include "engine/engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/setup.h"
#include "layers/layers.h"
#include "providers.h"
#include "zt/gemm/gemm_choice.h"

namespace zt::infer {
namespace {

constexpr int64_t kVocabulary = 97;

struct Family {
  const char* name;
  Value::Table options;
};

std::vector<Family> families() {
  const Value::Table llama3{
      {"type", "llama3"}, {"factor", 4.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original", 32}};
  return {{"gpt2", {{"family", "gpt2"}}},
          {"llama", {{"family", "llama"}, {"kv_heads", 2}, {"rope_scaling", llama3}}},
          {"qwen3", {{"family", "llama"}, {"kv_heads", 1}, {"head_dim", 16}, {"qk_norm", true}}},
          {"mistral", {{"family", "llama"}, {"window", 30}}}};
}

std::shared_ptr<Trainer> trainer_of(const Family& family, at::ScalarType dtype) {
  if (!has_gemm("dots")) register_gemm_providers();
  Value::Table options = family.options;
  for (const auto& [key, value] :
       Value::Table{{"layers", 2}, {"hidden", 40}, {"heads", 4}, {"vocab", kVocabulary}, {"seq", 128}, {"seed", 3}, {"std", 0.2}})
    options[key] = value;
  Precision precision;
  precision.params = dtype;
  return Trainer::make(std::make_shared<Program>(nn::make_gpt(options), 1, precision), {});
}

Value::List tokens_of(int64_t length, int64_t seed) {
  Value::List tokens;
  for (int64_t i = 0; i < length; ++i) tokens.emplace_back((i * i * seed + 7 * i + seed) % kVocabulary);
  return tokens;
}

// Returns the logits of a text [tokens, vocabulary] by one forward over all of it, in float64.
at::Tensor whole_logits(Trainer& trainer, const std::vector<int64_t>& tokens) {
  const GemmScope scope("dots");
  const at::Tensor batch = at::tensor(tokens, at::kLong).unsqueeze(0);
  return trainer.infer(Batch{{"tokens", batch}}).at("logits")[0].to(at::kDouble);
}

std::vector<Answer> answers_of(Engine& engine) {
  std::vector<Answer> answers;
  for (EngineStep step = engine.step(); step.has_run; step = engine.step()) {
    for (Answer& answer : step.answers) answers.push_back(std::move(answer));
  }
  return answers;
}

// Returns the largest difference between the log-probabilities of an answer, and its prompt, and those of the whole forward.
double largest_difference(const Answer& answer, const Value::List& prompt, Trainer& trainer) {
  std::vector<int64_t> tokens;
  for (const Value& token : prompt) tokens.push_back(*token.get_if<int64_t>());
  for (const int32_t token : answer.tokens) tokens.push_back(token);
  const at::Tensor logits = whole_logits(trainer, tokens).contiguous();
  const auto logprob = [&](size_t place) {
    const std::span<const double> row(logits.const_data_ptr<double>() + (place - 1) * kVocabulary, kVocabulary);
    return row[static_cast<size_t>(tokens[place])] - log_sum_exp(row);
  };
  double largest = 0;
  for (size_t i = 0; i < answer.logprobs->size(); ++i)
    largest = std::max(largest, std::abs((*answer.logprobs)[i].logprob - logprob(prompt.size() + i)));
  for (size_t i = 0; i < answer.prompt_logprobs->size(); ++i)
    largest = std::max(largest, std::abs((*answer.prompt_logprobs)[i] - logprob(i + 1)));
  return largest;
}

class EngineDtypes : public testing::TestWithParam<at::ScalarType> {};

// In fp64, matrices are multiplied by LibTorch, whose sums depend on the number of rows.
TEST_P(EngineDtypes, HaveTheLogProbabilitiesOfTheTrainersForward) {
  for (const Family& family : families()) {
    const auto trainer = trainer_of(family, GetParam());
    EngineOptions options;
    options.trainer = trainer;
    options.token_budget = 20;
    options.max_sequences = 3;
    Engine engine(checked_options(options), {});
    std::map<int64_t, Value::List> prompts;
    for (int64_t i = 1; i <= 6; ++i) {
      const Value::List prompt = tokens_of(9 * i, i);
      prompts[engine.submit(Value::Table{
          {"prompt", prompt}, {"max_tokens", 20 + i}, {"seed", i}, {"logprobs", 0}, {"prompt_logprobs", true}})] = prompt;
    }
    const std::vector<Answer> answers = answers_of(engine);
    ASSERT_EQ(answers.size(), 6);
    for (const Answer& answer : answers) {
      EXPECT_EQ(answer.logprobs->size(), 20 + answer.request);
      EXPECT_EQ(answer.prompt_logprobs->size(), 9 * answer.request - 1);
      EXPECT_LE(largest_difference(answer, prompts.at(answer.request), *trainer), GetParam() == at::kDouble ? 1e-12 : 0)
          << family.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineDtypes, testing::Values(at::kFloat, at::kBFloat16, at::kHalf, at::kDouble));

// 200,000 draws of one token, against the probabilities of its logits.
TEST(Draws, FollowTheProbabilities) {
  const at::Tensor logits = at::randn({1, 12}, at::kDouble);
  const at::Tensor probabilities = logits[0].softmax(0);
  const std::span<const double> row(logits.const_data_ptr<double>(), 12);
  std::vector<int64_t> counts(12);
  Sampler sampler;
  constexpr int64_t kDraws = 1000000;
  for (int64_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<size_t>(sampler.sample(row, {}, {}, {}, uniform_of(1 + i / 1000, i % 7, i)).token)];
  double chi_square = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = kDraws * probabilities[static_cast<int64_t>(i)].item<double>();
    chi_square += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
  }
  EXPECT_LT(chi_square, 37.4);  // 11 degrees of freedom: exceeded once in 10,000 times
}

// Requests travel to other ranks as JSON.
TEST(Requests, AreTheSameAsJson) {
  const Value::Table table{{"prompt", at::tensor({3, 1, 4}, at::kLong)},
                           {"temperature", 0.7},
                           {"logit_bias", Value::Table{{"5", -100.0}}},
                           {"stop", Value::List{"a\xff b"}},
                           {"stop_tokens", Value::List{}}};
  const Value plain = plain_request(table, "request 1", 100);
  const Request request = parse_request(Value::from_json(plain.to_json()), "request 1");
  EXPECT_EQ(request.prompt, (std::vector<int32_t>{3, 1, 4}));
  EXPECT_EQ(request.max_tokens, 97);
  EXPECT_EQ(request.logit_bias, (std::map<int32_t, double>{{5, -100}}));
  EXPECT_EQ(request.stop, std::vector<std::string>{"a\xff b"});
  EXPECT_EQ(request.stop_tokens, std::vector<int32_t>{});
}

TEST(Drawn, AreTheSameAsValues) {
  const double never = -std::numeric_limits<double>::infinity();
  const std::vector<DrawnTokens> drawn{
      {.tokens = {{7, -0.5, -0.25, {{1, -1.0 / 3}, {2, never}}}}, .prompt_logprobs = {-2, never}}, {.error = "no"}, {}};
  const std::vector<DrawnTokens> again = drawn_of(Value::from_json(nlohmann::json::parse(to_value(drawn).to_json().dump())));
  ASSERT_EQ(again.size(), 3);
  ASSERT_EQ(again[0].tokens.size(), 1);
  EXPECT_EQ(again[0].tokens[0].token, 7);
  EXPECT_EQ(again[0].tokens[0].sampled_logprob, -0.25);
  EXPECT_EQ(again[0].tokens[0].top, drawn[0].tokens[0].top);
  EXPECT_EQ(again[0].prompt_logprobs, drawn[0].prompt_logprobs);
  EXPECT_EQ(again[1].error, "no");
  EXPECT_TRUE(again[2].tokens.empty());
}

}  // namespace
}  // namespace zt::infer
