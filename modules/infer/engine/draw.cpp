#include "engine/draw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>

#include "zt/base/error.h"
#include "zt/random/rng.h"

namespace zt::infer {

double uniform_of(int64_t seed, int64_t copy, int64_t index) {
  const Philox stream = Philox::keyed(static_cast<uint64_t>(seed), Purpose::sample, static_cast<uint64_t>(copy), 0);
  const Philox::Block block = stream.block(0, static_cast<uint64_t>(index));
  return static_cast<double>((uint64_t{block[0]} << 16) | (block[1] >> 16)) * 0x1p-48;
}

namespace {

// Returns those of the tokens that the model has.
std::vector<int32_t> within(std::span<const int32_t> tokens, int64_t vocabulary) {
  std::vector<int32_t> known;
  std::ranges::copy_if(tokens, std::back_inserter(known), [&](int32_t token) { return token < vocabulary; });
  return known;
}

// The rows of logits of a part, all tokens of which are here. Has the memory of one thread.
class WholeRows {
 public:
  explicit WholeRows(int64_t vocabulary) : vocabulary_(vocabulary) {}
  // `rows`: of the part that is drawn next, float64 [rows, vocabulary].
  void set(const double* rows) { rows_ = rows; }

  int64_t vocabulary() const { return vocabulary_; }
  bool can_draw(int64_t row) const { return can_sample(logits(row)); }
  TokenLogprob draw(int64_t row, const LiveAnswer& answer, const TokenCounts& counts, int64_t index) {
    const Request& request = answer.request();
    const std::span<const double> of = logits(row);
    const SampledToken sampled = sampler_.sample(of, request, counts, within(answer.forbidden(index), vocabulary_),
                                                 uniform_of(request.seed, answer.copy(), index));
    TokenLogprob token{.token = sampled.token, .sampled_logprob = sampled.sampled_logprob};
    if (!request.logprobs || token.token < 0) return token;
    const double whole = log_sum_exp(of);
    token.logprob = of[static_cast<size_t>(sampled.token)] - whole;
    for (const int32_t likely : likeliest(of, *request.logprobs))
      token.top.emplace_back(likely, of[static_cast<size_t>(likely)] - whole);
    return token;
  }
  double logprob(int64_t row, int32_t token) const { return logits(row)[static_cast<size_t>(token)] - log_sum_exp(logits(row)); }

 private:
  std::span<const double> logits(int64_t row) const { return {rows_ + row * vocabulary_, static_cast<size_t>(vocabulary_)}; }

  const int64_t vocabulary_;
  const double* rows_ = nullptr;
  Sampler sampler_;
};

// The rows of a part, about which everything was found out together with other ranks.
class FoundRows {
 public:
  FoundRows(int64_t vocabulary, std::span<const RowResult> rows) : vocabulary_(vocabulary), rows_(rows) {}

  int64_t vocabulary() const { return vocabulary_; }
  bool can_draw(int64_t row) const { return at(row).can_sample; }
  TokenLogprob draw(int64_t row, const LiveAnswer& answer, const TokenCounts&, int64_t) const {
    const RowResult& found = at(row);
    TokenLogprob token{.token = found.sampled.token, .sampled_logprob = found.sampled.sampled_logprob};
    if (!answer.request().logprobs) return token;
    token.logprob = found.logprob;
    token.top = found.top;
    return token;
  }
  double logprob(int64_t row, int32_t) const { return at(row).known; }

 private:
  const RowResult& at(int64_t row) const { return rows_[static_cast<size_t>(row)]; }

  const int64_t vocabulary_;
  const std::span<const RowResult> rows_;
};

// Returns how many of the part's rows, the last ones, are drawn from if all guesses are right.
int64_t drawn_rows(const AnswerPart& part) {
  return part.draws() ? std::ssize(part.guesses) + 1 : 0;
}

// Returns the token of the prompt that follows the row's one, if its log-probability is asked for and not known yet.
std::optional<int32_t> asked_of_prompt(const AnswerPart& part, int64_t row) {
  const LiveAnswer& answer = *part.answer;
  if (!answer.sequence.needs_all_logits || row >= part.logits - drawn_rows(part)) return {};
  const int64_t place = answer.sequence.computed + part.rows - part.logits + row;  // of the row's token
  if (place + 1 >= std::ssize(answer.request().prompt) || place < answer.known_of_prompt()) return {};
  return answer.sequence.tokens[static_cast<size_t>(place + 1)];
}

template <class Rows>
bool can_draw(const Rows& rows, int64_t row, const LiveAnswer& answer, int64_t index, DrawnTokens& drawn) {
  const Request& request = answer.request();
  if (!rows.can_draw(row)) {
    drawn.error = message(
        "{}: the logits for token {} of the answer are not finite, so no token has a probability: the weights or the activations "
        "are not finite; look at the loss of the last steps, or go back to an earlier checkpoint",
        request.path, index);
    return false;
  }
  const auto beyond = request.logit_bias.lower_bound(static_cast<int32_t>(rows.vocabulary()));
  if (beyond == request.logit_bias.end()) return true;
  drawn.error = message("{}.logit_bias names the token {}, but the model has {} tokens, counted from 0", request.path,
                        beyond->first, rows.vocabulary());
  return false;
}

template <class Rows>
DrawnTokens draw_part(const AnswerPart& part, Rows& rows) {
  DrawnTokens drawn;
  const LiveAnswer& answer = *part.answer;
  for (int64_t row = 0; row < part.logits; ++row) {
    if (const auto asked = asked_of_prompt(part, row)) drawn.prompt_logprobs.push_back(rows.logprob(row, *asked));
  }
  const int64_t drawing = drawn_rows(part), guesses = std::ssize(part.guesses);
  TokenCounts counts;
  const TokenCounts* now = &answer.counts();
  for (int64_t i = 0; i < drawing; ++i) {
    const int64_t index = answer.length() + i, row = part.logits - drawing + i;
    if (!can_draw(rows, row, answer, index, drawn)) break;
    TokenLogprob next = rows.draw(row, answer, *now, index);
    const int32_t token = next.token;
    if (token < 0) {
      drawn.error = message(
          "{}: no token can be drawn for token {} of the answer: the stop tokens that min_tokens forbids, the biases or the penalties "
          "leave none; lower min_tokens, or give smaller penalties",
          answer.request().path, index);
      break;
    }
    drawn.tokens.push_back(std::move(next));
    if (i == guesses || token != part.guesses[static_cast<size_t>(i)] || answer.is_stop(token)) break;
    if (i == 0) counts = answer.counts();
    counts.add_answer(token);
    now = &counts;
  }
  return drawn;
}

// Adds what is asked of the rows of a part, as if all of its guesses were right: a row after a wrong one is not looked at.
// `counts`: holds the counts of tokens that are not an answer's own ones.
void add_tasks(const AnswerPart& part, const double* logits, const TokenShare& share, std::deque<TokenCounts>& counts,
               std::vector<RowTask>& tasks) {
  const LiveAnswer& answer = *part.answer;
  const Request& request = answer.request();
  const int64_t drawing = drawn_rows(part);
  for (int64_t row = 0; row < part.logits; ++row) {
    RowTask& task = tasks.emplace_back();
    task.logits = {logits + row * share.count, static_cast<size_t>(share.count)};
    task.known = asked_of_prompt(part, row);
    const int64_t i = row - (part.logits - drawing);
    if (i < 0) continue;
    if (i > 0) {
      counts.push_back(*tasks[tasks.size() - 2].counts);
      counts.back().add_answer(part.guesses[static_cast<size_t>(i - 1)]);
    }
    task.options = &request;
    task.counts = i == 0 ? &answer.counts() : &counts.back();
    task.forbidden = within(answer.forbidden(answer.length() + i), share.vocabulary);
    task.uniform = uniform_of(request.seed, answer.copy(), answer.length() + i);
    task.top = request.logprobs;
  }
}

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

std::vector<DrawnTokens> draw(const std::vector<AnswerPart>& parts, const at::Tensor& logits, const TokenShare* share) {
  const at::Tensor rows = needed_rows(parts, logits.detach()).to(at::kCPU, at::kDouble).contiguous();
  const auto* const numbers = rows.const_data_ptr<double>();
  std::vector<int64_t> first(parts.size());
  int64_t total = 0;
  for (size_t i = 0; i < parts.size(); ++i) first[i] = std::exchange(total, total + parts[i].logits);
  std::vector<DrawnTokens> drawn(parts.size());
  if (share) {
    std::vector<RowTask> tasks;
    std::deque<TokenCounts> counts;
    for (size_t i = 0; i < parts.size(); ++i) add_tasks(parts[i], numbers + first[i] * share->count, *share, counts, tasks);
    const std::vector<RowResult> found = draw_shared(tasks, *share);
    for (size_t i = 0; i < parts.size(); ++i) {
      FoundRows own(share->vocabulary, {found.data() + first[i], static_cast<size_t>(parts[i].logits)});
      drawn[i] = draw_part(parts[i], own);
    }
    return drawn;
  }
  at::parallel_for(0, std::ssize(parts), 1, [&](int64_t begin, int64_t end) {
    WholeRows of_thread(rows.size(1));
    for (int64_t i = begin; i < end; ++i) {
      const auto index = static_cast<size_t>(i);
      of_thread.set(numbers + first[index] * rows.size(1));
      drawn[index] = draw_part(parts[index], of_thread);
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
