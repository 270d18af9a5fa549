#include "batch.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "zt/base/error.h"

namespace zt {

void check_batch(const Batch& batch, int parts) {
  if (batch.empty()) misuse("the batch is empty: give a table of tensors such as {{tokens = ..., labels = ...}}");
  const auto& [first_name, first] = *batch.begin();
  for (const auto& [name, field] : batch) {
    if (field.dim() == 0) misuse("the batch field '{}' is a scalar: fields are [samples, ...]", name);
    if (field.size(0) != first.size(0)) {
      misuse("the batch fields '{}' and '{}' have {} and {} samples", first_name, name, first.size(0), field.size(0));
    }
  }
  if (first.size(0) % parts != 0 || first.size(0) == 0) {
    misuse("this rank's {} samples cannot be cut into {} micro-batches evenly: change the batch or micro_batches", first.size(0),
           parts);
  }
}

Batch batch_on_meta(const Batch& batch, int times) {
  Batch fields;
  for (const auto& [name, field] : batch) {
    std::vector<int64_t> sizes = field.sizes().vec();
    sizes[0] *= times;
    fields[name] = at::empty(sizes, field.options().device(at::kMeta));
  }
  return fields;
}

bool has_shapes_of(const Batch& fields, const Batch& batch, int times) {
  return batch.size() == fields.size() && std::ranges::all_of(batch, [&](const auto& field) {
           const auto found = fields.find(field.first);
           return found != fields.end() && found->second.sizes().slice(1) == field.second.sizes().slice(1) &&
                  found->second.size(0) == times * field.second.size(0);
         });
}

}  // namespace zt
