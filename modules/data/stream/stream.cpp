#include "stream.h"

#include <ATen/ops/arange.h>

#include <limits>

#include "permutation.h"
#include "zt/base/options.h"

namespace zt {
ZT_DEFINE_OBJECT(data::Stream, "TokenStream")
}

namespace zt::data {

namespace {

void check(const std::string& name, const StreamOptions& options) {
  const auto ranks = static_cast<int64_t>(options.ranks);
  if (options.batch % ranks != 0) {
    misuse(
        "{}: batch = {} samples cannot be shared equally by the {} ranks of its axis ({} = {} * {} + {}): give a multiple of {}",
        name, options.batch, ranks, options.batch, ranks, options.batch / ranks, options.batch % ranks, ranks);
  }
  const int64_t rows = options.batch / ranks;
  if (rows % options.micro_batches != 0) {
    misuse("{}: the {} samples of a rank (batch = {} / {} ranks) cannot be split into {} equal micro-batches (remainder {})",
           name, rows, options.batch, ranks, options.micro_batches, rows % options.micro_batches);
  }
}

struct State {
  int64_t seed = 0, step = 0;
};
const auto kState = Schema<State>("stream")
                        .required("seed", &State::seed, "seed of the order")
                        .required("step", &State::step, "next step", at_least(0));

}  // namespace

Source::~Source() = default;

Stream::Stream(std::string name, std::unique_ptr<Source> source, StreamOptions options)
    : name_(std::move(name)), source_(std::move(source)), options_(options) {
  check(name_, options_);
}

int64_t Stream::checked_step(int64_t step) const {
  const int64_t last = std::numeric_limits<int64_t>::max() / options_.batch - 1;
  if (step < 0 || step > last) misuse("{}: step must lie between 0 and {}, got {}", name_, last, step);
  return step;
}

int64_t Stream::epoch(int64_t step) const {
  return checked_step(step) * options_.batch / source_->samples();
}

void Stream::seek(int64_t step) {
  step_ = checked_step(step);
}

std::vector<Place> Stream::places(int64_t first) const {
  const int64_t samples = source_->samples();
  const auto order = [&](int64_t epoch) {
    return Permutation(samples,
                       Philox::keyed(static_cast<uint64_t>(options_.seed), Purpose::shuffle, static_cast<uint64_t>(epoch)));
  };
  std::vector<Place> places;
  Permutation permutation = order(first / samples);
  for (int64_t g = first; g < first + rows(); ++g) {
    const int64_t epoch = g / samples, place = g % samples;
    if (place == 0) permutation = order(epoch);
    places.push_back({epoch, options_.shuffle ? permutation(place) : place});
  }
  return places;
}

Fields Stream::batch(int64_t step) const {
  const int64_t first = checked_step(step) * options_.batch + options_.rank * rows();
  Fields fields = source_->make(places(first), options_.seed);
  fields["sample"] = at::arange(first, first + rows(), at::kLong);
  return fields;
}

Value Stream::state() const {
  return Value::Table{{"seed", options_.seed}, {"step", step_}};
}

void Stream::restore(const Value& state) {
  const State parsed = kState.parse(state);
  seek(parsed.step);
  options_.seed = parsed.seed;
}

void Stream::visit(Visitor& visitor) {
  Value value = state();
  visitor.value("stream", value);
  restore(value);
}

}  // namespace zt::data
