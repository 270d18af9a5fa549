#include "equal.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace zt {

namespace {

bool is_equal_value(const Value& a, const Value& b);

bool is_equal_table(const Value::Table& a, const Value::Table& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && is_equal_value(x.second, y.second); });
}

bool is_equal_value(const Value& a, const Value& b) {
  if (a.data().index() != b.data().index()) return false;
  if (const auto* tensor = a.get_if<at::Tensor>()) return tensor->is_same(*b.get_if<at::Tensor>());
  if (const auto* object = a.get_if<Object>()) return object->pointer == b.get_if<Object>()->pointer;
  if (const auto* list = a.get_if<Value::List>()) {
    const auto& other = *b.get_if<Value::List>();
    return std::equal(list->begin(), list->end(), other.begin(), other.end(),
                      [](const Value& x, const Value& y) { return is_equal_value(x, y); });
  }
  if (const auto* table = a.get_if<Value::Table>()) return is_equal_table(*table, *b.get_if<Value::Table>());
  return a.to_json() == b.to_json();
}

}  // namespace

bool is_equal(const Action& a, const Action& b) {
  return a.kind == b.kind && a.target == b.target && a.micro_batch == b.micro_batch && is_equal_table(a.attrs, b.attrs);
}

bool is_equal(const RankProgram& a, const RankProgram& b) {
  if (&a == &b) return true;
  return a.mode == b.mode && a.micro_batches == b.micro_batches && a.units == b.units && a.precision == b.precision &&
         a.max_live == b.max_live && a.split_axes == b.split_axes && a.buffers == b.buffers &&
         std::equal(a.actions.begin(), a.actions.end(), b.actions.begin(), b.actions.end(),
                    [](const Action& x, const Action& y) { return is_equal(x, y); });
}

}  // namespace zt
