#include "engine/request.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <limits>

#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt::infer {

namespace {

constexpr int64_t kLargestToken = std::numeric_limits<int32_t>::max();

int32_t token_of(int64_t token, const std::string& path) {
  if (token < 0 || token > kLargestToken) misuse("{} is {}, which is no token: tokens are numbers from 0 on", path, token);
  return static_cast<int32_t>(token);
}

std::vector<int32_t> tokens_of(const std::vector<int64_t>& numbers, const std::string& path) {
  std::vector<int32_t> tokens;
  tokens.reserve(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < 0 || numbers[i] > kLargestToken) token_of(numbers[i], fmt::format("{}[{}]", path, i + 1));
    tokens.push_back(static_cast<int32_t>(numbers[i]));
  }
  return tokens;
}

// Returns the tokens of a list, or of a tensor [n] or [1, n].
std::vector<int64_t> numbers_of(const Value& value, const std::string& path) {
  std::vector<int64_t> numbers;
  const auto* tensor = value.get_if<at::Tensor>();
  if (!tensor) {
    if (!value.get_if<Value::List>() && !(value.get_if<Value::Table>() && value.get_if<Value::Table>()->empty()))
      misuse("{} must be a list of tokens or an int64 tensor [n] or [1, n], got {}", path, value.type_name());
    convert(value, path, numbers);
    return numbers;
  }
  const bool is_row = tensor->dim() == 1 || (tensor->dim() == 2 && tensor->size(0) == 1);
  if (tensor->scalar_type() != at::kLong || !is_row)
    misuse("{} must be a list of tokens or an int64 tensor [n] or [1, n], got {}", path, describe(*tensor));
  const at::Tensor on_host = tensor->cpu().contiguous();
  numbers.assign(on_host.const_data_ptr<int64_t>(), on_host.const_data_ptr<int64_t>() + on_host.numel());
  return numbers;
}

// A table as scripts and messages between ranks have it.
struct RequestTable : Request {
  Value prompt_value, messages, variables, specials;
  std::map<std::string, double> bias = {};  // by the token's number, as JSON has it
  std::optional<std::vector<int64_t>> stop_numbers = {};
};

// "nan" whatever its sign.
std::string number_text(double number) {
  return std::isnan(number) ? "nan" : fmt::format("{}", number);
}
std::string finite(const double& number) {
  return std::isfinite(number) ? "" : fmt::format("must be finite, got {}", number_text(number));
}
std::string at_least_zero(const double& number) {
  return std::isfinite(number) && number >= 0 ? "" : fmt::format("must be finite and at least 0, got {}", number_text(number));
}
std::string above_zero(const double& number) {
  return std::isfinite(number) && number > 0 ? "" : fmt::format("must be finite and above 0, got {}", number_text(number));
}
std::string share(const double& number) {
  return number > 0 && number <= 1 ? "" : fmt::format("must be above 0 and at most 1, got {}", number_text(number));
}
std::string no_empty_text(const std::vector<std::string>& texts) {
  return std::ranges::find(texts, "") == texts.end() ? "" : "has an empty text, which would end each answer at once";
}

// `messages`, `variables` and `specials` are read in Lua: here they are only known.
Schema<RequestTable> request_schema(const std::string& path) {
  return Schema<RequestTable>(path)
      .required("prompt", &RequestTable::prompt_value, "a list of tokens, or an int64 tensor [n] or [1, n]")
      .optional("max_tokens", &RequestTable::max_tokens, "the most tokens of the answer", at_least(1))
      .optional("min_tokens", &RequestTable::min_tokens, "the answer does not end before it has so many tokens", at_least(0))
      .optional("n", &RequestTable::n, "answers, each with tokens of its own", between(1, 4096))
      .optional("temperature", &RequestTable::temperature, "divides the logits; 0: always the likeliest token", at_least_zero)
      .optional("top_k", &RequestTable::top_k, "draws from so many likeliest tokens; 0: all", at_least(0))
      .optional("top_p", &RequestTable::top_p,
                "draws from the likeliest tokens with at least this share of the probability; 1: all", share)
      .optional("min_p", &RequestTable::min_p, "draws from tokens with at least this share of the likeliest one's probability",
                between(0, 1))
      .optional("repetition_penalty", &RequestTable::repetition_penalty,
                "divides logits above 0 of tokens that prompt or answer have, multiplies others", above_zero)
      .optional("presence_penalty", &RequestTable::presence_penalty,
                "is subtracted from the logits of tokens that the answer has", finite)
      .optional("frequency_penalty", &RequestTable::frequency_penalty,
                "as presence_penalty, for each time that the answer has the token", finite)
      .optional("logit_bias", &RequestTable::bias, "is added to logits, by token")
      .optional("seed", &RequestTable::seed, "the same seed gives the same answer", at_least(0))
      .optional("stop", &RequestTable::stop, "texts before which the answer ends", no_empty_text)
      .optional("stop_tokens", &RequestTable::stop_numbers, "tokens after which it ends; default: those of the model")
      .optional("ignore_eos", &RequestTable::ignore_eos, "the model's tokens do not end the answer")
      .only_with("without stop_tokens", [](const RequestTable& o) { return !o.stop_numbers; })
      .optional("logprobs", &RequestTable::logprobs, "of each token of the answer, with so many of the likeliest ones",
                between(0, 1000))
      .optional("prompt_logprobs", &RequestTable::prompt_logprobs, "of each token of the prompt after the first")
      .optional("salt", &RequestTable::salt, "keys and values of the prompt are shared with requests of the same salt only")
      .optional("messages", &RequestTable::messages, "in place of prompt: a conversation, as the chat template takes it")
      .optional("variables", &RequestTable::variables, "further names that the chat template reads")
      .optional("specials", &RequestTable::specials, "what becomes of special tokens in a prompt that is a text")
      .checked([path](const RequestTable& o) {
        for (const auto& [name, value] :
             {std::pair("messages", &o.messages), {"variables", &o.variables}, {"specials", &o.specials}}) {
          if (!value->is_nil()) misuse("{}.{} is for infer.engine, which makes the prompt of it: give tokens", path, name);
        }
        if (o.min_tokens > o.max_tokens) misuse("{}: min_tokens = {} is above max_tokens = {}", path, o.min_tokens, o.max_tokens);
      });
}

int64_t number_of(const std::string& key, const std::string& path) {
  size_t used = 0;
  int64_t number = -1;
  try {
    number = std::stoll(key, &used);
  } catch (const std::exception&) {
  }
  if (used != key.size() || key.empty()) misuse("{}: '{}' is no token: give {{[token] = number}}", path, key);
  return number;
}

std::map<int32_t, double> bias_of(const std::map<std::string, double>& by_name, const std::string& path) {
  std::map<int32_t, double> bias;
  for (const auto& [key, number] : by_name) {
    if (const std::string wrong = finite(number); !wrong.empty()) misuse("{}[{}] {}", path, key, wrong);
    bias[token_of(number_of(key, path), path)] = number;
  }
  return bias;
}

}  // namespace

Request parse_request(const Value& table, const std::string& path) {
  RequestTable given = request_schema(path).parse(table);
  const std::string at = path + ".";
  given.prompt = tokens_of(numbers_of(given.prompt_value, at + "prompt"), at + "prompt");
  if (given.prompt.empty()) misuse("{}.prompt is empty: give at least one token, such as the one that begins a text", path);
  if (given.stop_numbers) given.stop_tokens = tokens_of(*given.stop_numbers, at + "stop_tokens");
  given.logit_bias = bias_of(given.bias, at + "logit_bias");
  given.path = path;
  return given;
}

Value plain_request(const Value& value, const std::string& path, int64_t max_context) {
  const auto* table = value.get_if<Value::Table>();
  if (!table || !table->contains("prompt")) return value;
  Value::Table plain = *table;
  const std::vector<int64_t> numbers = numbers_of(plain.at("prompt"), path + ".prompt");
  plain["prompt"] = Value::List(numbers.begin(), numbers.end());
  if (!plain.contains("max_tokens"))
    plain["max_tokens"] = std::clamp<int64_t>(max_context - std::ssize(numbers), 1, Request{}.max_tokens);
  return plain;
}

Value to_value(const Answer& answer) {
  Value::Table table{{"request", answer.request},
                     {"copy", answer.copy},
                     {"tokens", Value::List(answer.tokens.begin(), answer.tokens.end())},
                     {"text", answer.text},
                     {"finish_reason", word_of(answer.reason)},
                     {"cached_tokens", answer.cached_tokens},
                     {"first_seconds", answer.first_seconds},
                     {"seconds", answer.seconds}};
  if (!answer.stop.empty()) table["stop"] = answer.stop;
  if (!answer.error.empty()) table["error"] = answer.error;
  if (answer.logprobs) {
    Value::List list;
    for (const TokenLogprob& of : *answer.logprobs) {
      Value::List top;
      for (const auto& [token, logprob] : of.top) top.push_back(Value::Table{{"token", int64_t{token}}, {"logprob", logprob}});
      Value::Table entry{{"token", int64_t{of.token}}, {"logprob", of.logprob}, {"sampled_logprob", of.sampled_logprob}};
      if (!top.empty()) entry["top"] = std::move(top);
      list.emplace_back(std::move(entry));
    }
    table["logprobs"] = std::move(list);
  }
  if (answer.prompt_logprobs)
    table["prompt_logprobs"] = Value::List(answer.prompt_logprobs->begin(), answer.prompt_logprobs->end());
  return table;
}

}  // namespace zt::infer
