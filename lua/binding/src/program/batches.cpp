#include "program/batches.h"

#include "zt/base/error.h"

namespace zt::lua {

Batch to_batch(const Value& value, const std::string& what) {
  const auto* table = value.get_if<Value::Table>();
  if (!table)
    misuse("{}: a batch (a table of tensors such as {{tokens = ..., labels = ...}}) expected, got {}", what, value.type_name());
  Batch batch;
  for (const auto& [name, field] : *table) {
    const auto* tensor = field.get_if<at::Tensor>();
    if (!tensor) misuse("the batch field '{}' must be a tensor, got {}", name, field.type_name());
    batch[name] = *tensor;
  }
  return batch;
}

StepBatch to_step_batch(const Value& value, const std::string& what) {
  const auto* list = value.get_if<Value::List>();
  if (!list || list->empty()) return to_batch(value, what);
  std::vector<Batch> micro_batches;
  for (const Value& each : *list)
    micro_batches.push_back(to_batch(each, fmt::format("{}, micro-batch {}", what, micro_batches.size())));
  return micro_batches;
}

namespace {

// Methods count their arguments after the object.
std::string argument(int index) {
  return fmt::format("argument {}", index - 1);
}

}  // namespace

Batch check_batch(lua_State* L, int index) {
  return to_batch(check_value(L, index), argument(index));
}

StepBatch check_step_batch(lua_State* L, int index) {
  try {
    return to_step_batch(check_value(L, index), argument(index));
  } catch (const Misuse& error) {
    return StepBatch::wrong(error.what());
  }
}

}  // namespace zt::lua
