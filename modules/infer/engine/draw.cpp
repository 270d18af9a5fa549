#include "engine/draw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <limits>

#include "zt/base/error.h"
#include "zt/random/rng.h"

namespace zt::infer {

double uniform_of(int64_t seed, int64_t copy, int64_t index) {
  const Philox stream = Philox::keyed(static_cast<uint64_t>(seed), Purpose::sample, static_cast<uint64_t>(copy), 0);
  const Philox::Block block = stream.block(0, static_cast<uint64_t>(index));
  return static_cast<double>((uint64_t{block[0]} << 16) | (block[1] >> 16)) * 0x1p-48;
}

namespace {

// Draws for one part. Has the memory of one thread.
class PartDraw {
 public:
  // `rows`: of the part, float64 [rows, vocabulary].
  DrawnTokens run(const AnswerPart& part, std::span<const double> rows, size_t vocabulary) {
    DrawnTokens drawn;
    const LiveAnswer& answer = *part.answer;
    const auto row = [&](int64_t index) { return rows.subspan(static_cast<size_t>(index) * vocabulary, vocabulary); };
    const int64_t guesses = std::ssize(part.guesses), drawing = part.draws() ? guesses + 1 : 0;
    if (answer.sequence.needs_all_logits) add_prompt_logprobs(part, part.logits - drawing, row, drawn);
    TokenCounts counts;
    const TokenCounts* now = &answer.counts();
    for (int64_t i = 0; i < drawing && drawn.error.empty(); ++i) {
      const int64_t index = answer.length() + i;
      if (!can_draw(row(part.logits - drawing + i), answer, index, drawn)) break;
      drawn.tokens.push_back(token_of(row(part.logits - drawing + i), answer, *now, index));
      const int32_t token = drawn.tokens.back().token;
      if (i == guesses || token != part.guesses[static_cast<size_t>(i)] || answer.is_stop(token)) break;
      if (i == 0) counts = answer.counts();
      counts.add_answer(token);
      now = &counts;
    }
    return drawn;
  }

 private:
  static bool can_draw(std::span<const double> logits, const LiveAnswer& answer, int64_t index, DrawnTokens& drawn) {
    const Request& request = answer.request();
    if (!can_sample(logits)) {
      drawn.error = message(
          "{}: the logits for token {} of the answer are not finite, so no token has a probability: the weights or the activations "
          "are not finite; look at the loss of the last steps, or go back to an earlier checkpoint",
          request.path, index);
      return false;
    }
    const auto vocabulary = std::ssize(logits);
    const auto beyond = request.logit_bias.lower_bound(static_cast<int32_t>(vocabulary));
    if (beyond == request.logit_bias.end()) return true;
    drawn.error = message("{}.logit_bias names the token {}, but the model has {} tokens, counted from 0", request.path,
                          beyond->first, vocabulary);
    return false;
  }

  TokenLogprob token_of(std::span<const double> logits, const LiveAnswer& answer, const TokenCounts& counts, int64_t index) {
    const Request& request = answer.request();
    const auto forbidden = within(answer.forbidden(index), logits.size());
    const SampledToken sampled =
        sampler_.sample(logits, request, counts, forbidden, uniform_of(request.seed, answer.copy(), index));
    TokenLogprob token{.token = sampled.token, .sampled_logprob = sampled.sampled_logprob};
    if (!request.logprobs) return token;
    const double whole = log_sum_exp(logits);
    token.logprob = logits[static_cast<size_t>(sampled.token)] - whole;
    for (const int32_t likely : likeliest(logits, *request.logprobs))
      token.top.emplace_back(likely, logits[static_cast<size_t>(likely)] - whole);
    return token;
  }

  std::span<const int32_t> within(std::span<const int32_t> tokens, size_t vocabulary) {
    known_.clear();
    for (const int32_t token : tokens) {
      if (static_cast<size_t>(token) < vocabulary) known_.push_back(token);
    }
    return known_;
  }

  // Adds those of the tokens of the prompt that follow the first `count` rows. The row of the prompt's last token has none.
  template <class Row>
  void add_prompt_logprobs(const AnswerPart& part, int64_t count, const Row& row, DrawnTokens& drawn) {
    const TokenSequence& sequence = part.answer->sequence;
    const int64_t first = sequence.computed + part.rows - part.logits;  // the place of the first row
    for (int64_t i = 0; i < count; ++i) {
      const auto next = static_cast<size_t>(first + i + 1);
      if (next >= part.answer->request().prompt.size()) return;
      if (first + i < part.answer->known_of_prompt()) continue;  // computed again
      const auto logits = row(i);
      drawn.prompt_logprobs.push_back(logits[static_cast<size_t>(sequence.tokens[next])] - log_sum_exp(logits));
    }
  }

  Sampler sampler_;
  std::vector<int32_t> known_;
};

}  // namespace

namespace {

// Returns the rows that the parts need, of the logits of those or of all rows.
at::Tensor needed_rows(const std::vector<AnswerPart>& parts, const at::Tensor& logits) {
  std::vector<int64_t> needed;
  int64_t all = 0;
  for (const AnswerPart& part : parts) {
    all += part.rows;
    for (int64_t row = all - part.logits; row < all; ++row) needed.push_back(row);
  }
  if (logits.size(0) == std::ssize(needed)) return logits;
  if (logits.size(0) != all)
    misuse("infer.engine: the model's head gave logits of {} tokens, but {} of {} were asked for, in the batch's `logits_of`",
           logits.size(0), needed.size(), all);
  return logits.index_select(0, at::tensor(needed, at::kLong).to(logits.device()));
}

}  // namespace

std::vector<DrawnTokens> draw(const std::vector<AnswerPart>& parts, const at::Tensor& logits) {
  const at::Tensor rows = needed_rows(parts, logits.detach()).to(at::kCPU, at::kDouble).contiguous();
  const auto vocabulary = static_cast<size_t>(rows.size(1));
  std::vector<int64_t> first(parts.size());
  int64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) first[i] = std::exchange(total, total + parts[i].logits);
  std::vector<DrawnTokens> drawn(parts.size());
  at::parallel_for(0, std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    PartDraw of_thread;
    for (int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<size_t>(i);
      const std::span<const double> own{rows.const_data_ptr<double>() + first[index] * rows.size(1),
                                        static_cast<size_t>(parts[index].logits) * vocabulary};
      if (!own.empty()) drawn[index] = of_thread.run(parts[index], own, vocabulary);
    }
  });
  return drawn;
}

namespace {

template <class... Items>
Value list_with(Items... items) {
  Value::List list;
  list.reserve(sizeof...(items));
  (list.emplace_back(std::move(items)), ...);
  return list;
}

}  // namespace

Value to_value(const std::vector<DrawnTokens>& drawn) {
  Value::List parts;
  for (const DrawnTokens& part : drawn) {
    Value::List tokens;
    for (const TokenLogprob& token : part.tokens) {
      Value::List top;
      for (const auto& [likely, logprob] : token.top) top.push_back(list_with(int64_t{likely}, logprob));
      tokens.push_back(list_with(int64_t{token.token}, token.logprob, token.sampled_logprob, std::move(top)));
    }
    parts.push_back(
        list_with(std::move(tokens), Value::List(part.prompt_logprobs.begin(), part.prompt_logprobs.end()), part.error));
  }
  return parts;
}

namespace {

const Value::List& list_of(const Value& value) {
  static const Value::List kEmpty;
  const auto* list = value.get_if<Value::List>();
  return list ? *list : kEmpty;  // an empty list of JSON is an empty table
}

// JSON has no infinities: a log-probability that is none arrives as nil.
double number_in(const Value& value) {
  if (value.is_nil()) return -std::numeric_limits<double>::infinity();
  double number = 0;
  convert(value, "drawn tokens", number);
  return number;
}

}  // namespace

std::vector<DrawnTokens> drawn_of(const Value& value) {
  std::vector<DrawnTokens> drawn;
  for (const Value& each : list_of(value)) {
    const Value::List& fields = list_of(each);
    DrawnTokens& part = drawn.emplace_back();
    for (const Value& token : list_of(fields.at(0))) {
      const Value::List& of = list_of(token);
      TokenLogprob& to = part.tokens.emplace_back();
      to = {static_cast<int32_t>(number_in(of.at(0))), number_in(of.at(1)), number_in(of.at(2))};
      for (const Value& pair : list_of(of.at(3)))
        to.top.emplace_back(static_cast<int32_t>(number_in(list_of(pair).at(0))), number_in(list_of(pair).at(1)));
    }
    for (const Value& logprob : list_of(fields.at(1))) part.prompt_logprobs.push_back(number_in(logprob));
    convert(fields.at(2), "drawn tokens", part.error);
  }
  return drawn;
}

}  // namespace zt::infer
