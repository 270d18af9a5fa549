#include "steps.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "zt/base/options.h"

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

constexpr double kMostSteps = 1e12, kMostSamples = 1e18;  // in a state: sums and products stay below 2^63

struct StreamState {
  int64_t step = 0;
  std::optional<int64_t> samples;
  int64_t first_step = 0, first_sample = 0;
  Value::Table order;
};
const auto kState =
    Schema<StreamState>("stream")
        .required("step", &StreamState::step, "next step", between(0, kMostSteps))
        .optional("samples", &StreamState::samples, "samples consumed before that step", between(0, kMostSamples))
        .optional("first_step", &StreamState::first_step, "first step with this batch size", between(0, kMostSteps))
        .optional("first_sample", &StreamState::first_sample, "first sample of that step", between(0, kMostSamples))
        .optional("order", &StreamState::order, "the options that decide the order of samples");

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return fmt::format("'{}'", *text);
  if (const auto* number = value.get_if<double>()) return fmt::format("{}", *number);
  return value.is_nil() ? "absent" : value.to_json().dump();
}

Steps::Steps(std::string name, StreamOptions options) : name_(std::move(name)), options_(std::move(options)) {
  check(name_, options_);
  options_.order["kind"] = name_;
}

int64_t Steps::first_sample(int64_t step) const {
  const int64_t last = start_.step + (std::numeric_limits<int64_t>::max() - start_.sample) / options_.batch - 1;
  if (step < start_.step && step >= 0) {
    misuse(
        "{}: step {} had another batch size: this stream continues from a saved state at step {} with batch = {}, and has the "
        "steps from there on. Make a new stream to read earlier samples",
        name_, step, start_.step, options_.batch);
  }
  if (step < 0 || step > last) misuse("{}: step must lie between {} and {}, got {}", name_, start_.step, last, step);
  return start_.sample + (step - start_.step) * options_.batch;
}

void Steps::seek(int64_t step) {
  first_sample(step);  // checks the step
  step_ = step;
}

std::vector<int64_t> Steps::numbers(int64_t step) const {
  std::vector<int64_t> numbers(static_cast<size_t>(rows()));
  std::iota(numbers.begin(), numbers.end(), first_sample(step) + options_.rank * rows());
  return numbers;
}

Value Steps::state() const {
  return Value::Table{{"step", step_},
                      {"samples", first_sample(step_)},
                      {"first_step", start_.step},
                      {"first_sample", start_.sample},
                      {"order", options_.order}};
}

// Returns the options that differ from those in `saved`, with both values: "seed = 1 (this stream: 2)". Empty if all are equal.
std::string Steps::difference(const Value::Table& saved) const {
  if (saved.empty()) return "unknown options (an earlier version saved it)";
  Value::Table all = saved;
  all.insert(options_.order.begin(), options_.order.end());
  const auto value_in = [](const Value::Table& table, const std::string& key) {
    const auto found = table.find(key);
    return text_of(found == table.end() ? Value() : found->second);
  };
  std::vector<std::string> parts;
  for (const auto& [key, value] : all) {
    const std::string then = value_in(saved, key), now = value_in(options_.order, key);
    if (then != now) parts.push_back(fmt::format("{} = {} (this stream: {})", key, then, now));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void Steps::restore(const Value& state, Order accepted) {
  const StreamState saved = kState.parse(state);
  const std::string other = difference(saved.order);
  if (!other.empty() && accepted == Order::same) {
    misuse(
        "{}: the state is of a stream with {}. Its samples or their order are other ones, so some samples would come again and "
        "others never. Give the options of the state, or continue in the order of this stream with allow = \"other_order\", an "
        "option of {} and of restore",
        name_, other, name_);
  }
  // A state of an earlier version has no number of samples. It is taken only where any order is.
  const int64_t samples = saved.samples.value_or(saved.step * options_.batch);
  const int64_t steps = saved.step - saved.first_step, read = samples - saved.first_sample;
  const bool has_same_size = steps >= 0 && read % options_.batch == 0 && read / options_.batch == steps;
  start_ = has_same_size ? Start{saved.first_step, saved.first_sample} : Start{saved.step, samples};
  step_ = saved.step;
}

void Steps::visit(Visitor& visitor) {
  Value value = state();
  visitor.value("stream", value);
  if (visitor.is_load()) restore(value, options_.takes_other_order ? Order::any : Order::same);
}

}  // namespace zt::data
