#include "blend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "zt/base/error.h"

namespace zt::data {

namespace {

// Throws Misuse unless the texts of `what` are equal.
void ensure_equal(const Stream& a, const Stream& b, size_t place, const char* what, const std::string& of_a,
                  const std::string& of_b) {
  if (of_a == of_b) return;
  misuse("data.blend: the {} of stream 1 ({}) is {}, and that of stream {} ({}) is {}: the samples of one batch need the same",
         what, a.name(), of_a, place, b.name(), of_b);
}

std::string fields_of(const Stream& stream) {
  std::vector<std::string> texts;
  const std::vector<int64_t> first{0};
  for (const auto& [name, tensor] : stream.source().make(first)) {
    texts.push_back(fmt::format("{} [{}]", name, fmt::join(tensor.sizes().slice(1), ", ")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Two models of one size would give the same ids other meanings.
std::string tokenizer_of(const Stream& stream) {
  const auto& companion = stream.source().file().companion();
  return companion ? fmt::format("{} {}", companion->tokenizer, companion->model_hash) : "none recorded";
}

void check_alike(const std::vector<std::shared_ptr<const Stream>>& streams) {
  const Stream& first = *streams.front();
  for (size_t i = 1; i < streams.size(); ++i) {
    const Stream& other = *streams[i];
    const auto ensure = [&](const char* what, const auto& read) {
      ensure_equal(first, other, i + 1, what, read(first), read(other));
    };
    ensure("seq", [](const Stream& stream) { return std::to_string(stream.source().seq()); });
    ensure("vocabulary", [](const Stream& stream) { return std::to_string(stream.source().file().vocab()); });
    ensure("tokenizer", tokenizer_of);
    ensure("list of fields", fields_of);
  }
}

}  // namespace

BlendSequence::BlendSequence(std::vector<std::shared_ptr<const Stream>> streams, std::vector<double> weights, int64_t seed)
    : streams_(std::move(streams)), interleaving_(std::move(weights), seed) {
  check_alike(streams_);
}

Fields BlendSequence::make(std::span<const int64_t> numbers) const {
  std::vector<std::vector<int64_t>> wanted(streams_.size()), rows(streams_.size());  // by stream: numbers, and rows of the batch
  for (size_t row = 0; row < numbers.size(); ++row) {
    const Interleaving::Turn turn = interleaving_.turn(numbers[row]);
    wanted[turn.source].push_back(turn.number);
    rows[turn.source].push_back(static_cast<int64_t>(row));
  }
  Fields all;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (wanted[i].empty()) continue;
    const at::Tensor places = at::tensor(rows[i], at::kLong);
    for (const auto& [name, part] : streams_[i]->source().make(wanted[i])) {
      auto sizes = part.sizes().vec();
      sizes[0] = static_cast<int64_t>(numbers.size());
      const auto [field, is_new] = all.try_emplace(name);
      if (is_new) field->second = at::empty(sizes, part.options());
      field->second.index_copy_(0, places, part);
    }
  }
  return all;
}

int64_t BlendSequence::epoch(int64_t number) const {
  const std::vector<int64_t>& given = interleaving_.given(number);
  int64_t least = given[0] / streams_[0]->source().samples();
  for (size_t i = 1; i < streams_.size(); ++i) least = std::min(least, given[i] / streams_[i]->source().samples());
  return least;
}

int64_t BlendSequence::samples() const {
  int64_t total = 0;
  for (const auto& stream : streams_) total += stream->source().samples();
  return total;
}

std::vector<double> BlendSequence::token_frequencies() const {
  std::vector<double> mixed(static_cast<size_t>(file().vocab()));
  for (size_t i = 0; i < streams_.size(); ++i) {
    const std::vector<double> own = streams_[i]->source().token_frequencies();
    for (size_t id = 0; id < mixed.size(); ++id) mixed[id] += weights()[i] * own[id];
  }
  return mixed;
}

}  // namespace zt::data
