#include "micro_batches.h"

#include <ATen/ops/arange.h>

#include <algorithm>

#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"
#include "zt/model/sample_count.h"

namespace zt {

namespace {

// Returns the tokens of a sample, by the first field of the batch that has a number per token; -1 if there is none.
int64_t tokens_of(const Batch& batch, const TokenCut& cut) {
  for (const std::string& name : cut.fields) {
    const auto found = batch.find(name);
    if (found != batch.end() && found->second.dim() > 1) return found->second.size(1);
  }
  return -1;
}

// Returns an undefined tensor if the batch does not have the field.
at::Tensor field_of(const Batch& batch, const std::string& name) {
  const auto found = batch.find(name);
  return found == batch.end() ? at::Tensor() : found->second;
}

// Returns the batch with the tokens of this rank, and with `positions`.
Batch cut_tokens(const Batch& whole, const TokenCut& cut, const TokenPlaces& places) {
  Batch own;
  for (const auto& [name, field] : whole) {
    const bool has_all = field.dim() > 1 && field.size(1) == places.total;
    if (std::ranges::find(cut.fields, name) == cut.fields.end()) {
      if (has_all)
        misuse(
            "the batch field '{}' is {}, as if it had a number for each of the {} tokens, and tokens are cut along '{}': name it in "
            "the option `fields` of the layers that cut them, or give it another shape",
            name, describe(field), places.total, cut.axis);
      own[name] = field;
      continue;
    }
    if (!has_all)
      misuse("the batch field '{}' is {}, and samples have {} tokens, which are cut along '{}': it must be [samples, {}, ...]",
             name, describe(field), places.total, cut.axis, places.total);
    own[name] = tokens_in(field, places.own());
  }
  if (whole.contains("positions")) return own;
  const auto numbers = at::TensorOptions(whole.begin()->second.device()).dtype(at::kLong);
  const at::Tensor all = at::arange(places.total, numbers).expand({samples_of(whole), places.total});
  own["positions"] = tokens_in(all, places.own());
  return own;
}

}  // namespace

MicroBatches::Part MicroBatches::make_part(Batch whole, int64_t first_sample, bool can_cut) const {
  const auto& cut = state_.model->tokens;
  Part part{std::move(whole), first_sample};
  static const TokenCut kUsual;
  const int64_t total = tokens_of(part.whole, cut ? *cut : kUsual);
  if (total >= 0) part.tokens = whole_places(total);
  const Coord& coord = state_.links->place().coord;
  if (!cut || !can_cut || part.whole.empty() || coord.size(cut->axis) == 1) return part;
  if (total < 0)
    misuse("tokens are cut along '{}', but the batch has none of the fields {}", cut->axis, fmt::join(cut->fields, ", "));
  part.tokens = places_of(*cut, total, coord);
  part.cut = cut_tokens(part.whole, *cut, part.tokens);
  return part;
}

void MicroBatches::begin(std::vector<Batch> micro_batches, const RankProgram& program, int64_t first_sample) {
  std::vector<Part> parts;
  for (Batch& fields : micro_batches) {
    const int64_t samples = samples_of(fields);
    parts.push_back(make_part(std::move(fields), first_sample, program.mode != Mode::generate));
    first_sample += samples;
  }
  count_ = program.micro_batches;
  parts_ = std::move(parts);
}

void MicroBatches::set(int index, Batch fields, int64_t first_sample) {
  Part part = make_part(std::move(fields), first_sample, true);
  parts_.resize(static_cast<size_t>(index));
  parts_.push_back(std::move(part));
}

std::vector<Batch> MicroBatches::all() const {
  std::vector<Batch> micro_batches;
  for (const Part& part : parts_) micro_batches.push_back(part.whole);
  return micro_batches;
}

std::vector<Batch> MicroBatches::seen() const {
  std::vector<Batch> micro_batches;
  for (int index = 0; index < static_cast<int>(parts_.size()); ++index) micro_batches.push_back(fields(index));
  return micro_batches;
}

bool MicroBatches::need_equal_shapes() const {
  for (int position = 0; position < layers_.count(); ++position) {
    const ExchangeLayer* exchange = layers_.exchange(position);
    if (exchange && exchange->needs_equal_batches()) return true;
  }
  return false;
}

void MicroBatches::check(Mode mode) const {
  for (int index = 0; index < static_cast<int>(parts_.size()); ++index) check(index, mode);
}

void MicroBatches::check(int index, Mode mode) const {
  for (int position = 0; position < layers_.count(); ++position) {
    if (!layers_.runs(position)) continue;
    const auto field = [&](const std::string& name) { return field_of(part(index).whole, name); };
    with_layer_name(position, index, [&] { extras_of(layers_.layer(position)).check_batch(field, mode); });
  }
}

Counts MicroBatches::counts() const {
  Counts total;
  for (int index = 0; index < static_cast<int>(parts_.size()); ++index) {
    const Counts counted = counts(index);
    total.tokens += counted.tokens;
    total.samples += counted.samples;
  }
  return total;
}

Counts MicroBatches::counts(int index) const {
  const Batch& batch = part(index).whole;
  const auto field = [&](const std::string& name) { return field_of(batch, name); };
  Counts total{.tokens = 0, .samples = samples_of(batch)};
  const std::string *counter = nullptr, *sampler = nullptr;  // the first layers that count tokens, and that state samples
  for (int position = 0; position < layers_.count(); ++position) {
    if (!layers_.runs(position)) continue;
    const Counts counts = with_layer_name(position, index, [&] { return layers_.layer(position).count(field); });
    if (counts.samples != 0) {
      const int64_t stated = counts.samples == kNoSamples ? 0 : counts.samples;
      if (sampler && total.samples != stated) {
        misuse(
            "the loss layers '{}' and '{}' count {} and {} samples: the terms of one objective that are per sample are divided by one "
            "number; let them count the same",
            *sampler, layers_.info(position).name, total.samples, stated);
      }
      total.samples = stated;
      sampler = &layers_.info(position).name;
    }
    if (counts.tokens == 0) continue;
    if (counter && total.tokens != counts.tokens) {
      misuse(
          "the loss layers '{}' and '{}' count {} and {} valid tokens: the terms of one objective are divided by one number; "
          "give them the same labels or make one a loss per sample",
          *counter, layers_.info(position).name, total.tokens, counts.tokens);
    }
    total.tokens = counts.tokens;
    counter = &layers_.info(position).name;
  }
  return total;
}

}  // namespace zt
