#include "zt/execute/step_batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

namespace {

std::string names_of(const Batch& batch) {
  std::vector<std::string> names;
  for (const auto& [name, field] : batch) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<Batch> cut_evenly(const Batch& batch, int count) {
  check_batch(batch);
  const int64_t samples = samples_of(batch), part = samples / count;
  if (samples % count != 0) {
    misuse("this rank's {} cannot be cut into {} evenly: change the batch or micro_batches, or give a list of micro-batches",
           counted(samples, "sample"), counted(count, "micro-batch"));
  }
  std::vector<Batch> micro_batches(static_cast<size_t>(count));
  for (int m = 0; m < count; ++m) {
    for (const auto& [name, field] : batch) micro_batches[m][name] = field.narrow(0, m * part, part);
  }
  return micro_batches;
}

void check_list(const std::vector<Batch>& list, int count) {
  if (static_cast<int>(list.size()) != count)
    misuse("the list has {}, but a step of this program has {}: give one for each",
           counted(static_cast<int64_t>(list.size()), "micro-batch"), count);
  for (size_t m = 0; m < list.size(); ++m) {
    with_context([&] { return fmt::format("micro-batch {}", m); }, [&] { check_batch(list[m]); });
    if (names_of(list[m]) == names_of(list[0])) continue;
    misuse("micro-batch {} has the fields {}, and micro-batch 0 has {}: give all of them the same", m, names_of(list[m]),
           names_of(list[0]));
  }
}

}  // namespace

std::vector<Batch> StepBatch::cut(int count) const {
  if (const auto* why = std::get_if<std::string>(&given_)) misuse("{}", *why);
  if (const auto* whole = std::get_if<Batch>(&given_)) return cut_evenly(*whole, count);
  const auto& list = std::get<std::vector<Batch>>(given_);
  check_list(list, count);
  return list;
}

void check_batch(const Batch& batch) {
  if (batch.empty()) misuse("the batch is empty: give a table of tensors such as {{tokens = ..., labels = ...}}");
  const auto& [first_name, first] = *batch.begin();
  for (const auto& [name, field] : batch) {
    if (field.dim() == 0) misuse("the batch field '{}' is a scalar: fields are [samples, ...]", name);
    if (field.size(0) != first.size(0)) {
      misuse("the batch fields '{}' and '{}' have {} and {} samples", first_name, name, first.size(0), field.size(0));
    }
  }
  if (first.size(0) == 0) misuse("the batch has no samples: give each rank at least one per micro-batch");
}

int64_t samples_of(const Batch& batch) {
  return batch.empty() ? 0 : batch.begin()->second.size(0);
}

int64_t samples_of(const std::vector<Batch>& micro_batches) {
  int64_t samples = 0;
  for (const Batch& batch : micro_batches) samples += samples_of(batch);
  return samples;
}

std::vector<Batch> on_meta(const std::vector<Batch>& micro_batches) {
  std::vector<Batch> shapes;
  for (const Batch& batch : micro_batches) {
    Batch& fields = shapes.emplace_back();
    for (const auto& [name, field] : batch) fields[name] = at::empty(field.sizes(), field.options().device(at::kMeta));
  }
  return shapes;
}

bool has_shapes_of(const Batch& a, const Batch& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.first == y.first && x.second.sizes() == y.second.sizes(); });
}

bool has_shapes_of(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  return std::ranges::equal(a, b, [](const Batch& x, const Batch& y) { return has_shapes_of(x, y); });
}

}  // namespace zt
