#include "template/value/compare.h"

#include <algorithm>
#include <cmath>

namespace zt::data::jinja {

namespace {

// Returns the value of an integer, bool or float. A long double holds every int64_t exactly.
std::optional<long double> numeric_of(const TemplateValue& value) {
  if (const auto index = value.as_index()) return static_cast<long double>(*index);
  if (const double* number = value.number()) return static_cast<long double>(*number);
  return std::nullopt;
}

template <class T>
bool holds(Order order, const T& left, const T& right) {
  switch (order) {
    case Order::less:
      return left < right;
    case Order::less_equal:
      return left <= right;
    case Order::greater:
      return left > right;
    case Order::greater_equal:
      return left >= right;
  }
  return false;
}

bool is_equal_list(TemplateRun& run, const TemplateList& left, const TemplateList& right) {
  if (left.is_tuple != right.is_tuple || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i)
    if (!is_same(left.items[i], right.items[i]) && !is_equal(run, left.items[i], right.items[i])) return false;
  return true;
}

bool is_equal_dict(TemplateRun& run, const TemplateDict& left, const TemplateDict& right) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const TemplateValue* other = right.find(run, key);
    if (!other || (!is_same(value, *other) && !is_equal(run, value, *other))) return false;
  }
  return true;
}

bool compare_lists(TemplateRun& run, Order order, const TemplateList& left, const TemplateList& right) {
  const size_t size = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < size; ++i)
    if (!is_same(left.items[i], right.items[i]) && !is_equal(run, left.items[i], right.items[i]))
      return compare(run, order, left.items[i], right.items[i]);
  return holds(order, left.items.size(), right.items.size());
}

class FunctionIterator : public TemplateIterator {
 public:
  explicit FunctionIterator(NextFunction next) : next_(std::move(next)) {}
  std::optional<TemplateValue> next(TemplateRun& run) override {
    if (is_done_) return std::nullopt;
    run.charge(1);
    const auto level = run.enter_call();
    auto item = next_(run);
    is_done_ = !item;
    return item;
  }

 private:
  NextFunction next_;
  bool is_done_ = false;
};

class ListIterator : public TemplateIterator {
 public:
  explicit ListIterator(ListPtr list) : list_(std::move(list)) {}
  std::optional<TemplateValue> next(TemplateRun& run) override {
    if (at_ >= list_->items.size()) return std::nullopt;
    run.charge(1);
    return list_->items[at_++];
  }

 private:
  ListPtr list_;
  size_t at_ = 0;
};

}  // namespace

bool is_true(TemplateRun& run, const TemplateValue& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (const auto number = numeric_of(value)) return *number != 0;
  if (const MarkedText* text = value.text()) return !text->empty();
  if (const TemplateList* list = value.list()) return !list->items.empty();
  if (const TemplateDict* dict = value.dict()) return !dict->entries().empty();
  return value.object()->length(run).value_or(1) != 0;
}

bool is_same(const TemplateValue& left, const TemplateValue& right) {
  if (left.data().index() != right.data().index()) return false;
  if (const MarkedText* text = left.text()) return *text == *right.text();
  if (const int64_t* integer = left.integer()) return *integer == *right.integer();
  if (const double* number = left.number()) return *number == *right.number();
  if (const bool* boolean = left.boolean()) return *boolean == *right.boolean();
  if (const TemplateList* list = left.list()) return list == right.list();
  if (const TemplateDict* dict = left.dict()) return dict == right.dict();
  if (const UndefinedValue* undefined = left.undefined()) return undefined == right.undefined();
  return left.object() == right.object();
}

bool is_equal(TemplateRun& run, const TemplateValue& left, const TemplateValue& right) {
  run.charge(1);
  const auto left_number = numeric_of(left), right_number = numeric_of(right);
  if (left_number || right_number) return left_number && right_number && *left_number == *right_number;
  if (left.data().index() != right.data().index()) return false;
  if (const MarkedText* text = left.text()) {
    run.charge_text(std::min(text->size(), right.text()->size()));
    return *text == *right.text();
  }
  if (const TemplateList* list = left.list()) return is_equal_list(run, *list, *right.list());
  if (const TemplateDict* dict = left.dict()) return is_equal_dict(run, *dict, *right.dict());
  if (TemplateObject* const object = left.object()) return object->equals(run, *right.object());
  return true;  // none or undefined
}

bool compare(TemplateRun& run, Order order, const TemplateValue& left, const TemplateValue& right) {
  run.charge(1);
  run.refuse_undefined(left);
  run.refuse_undefined(right);
  const auto left_number = numeric_of(left), right_number = numeric_of(right);
  if (left_number && right_number) return holds(order, *left_number, *right_number);
  if (left.text() && right.text()) {
    run.charge_text(std::min(left.text()->size(), right.text()->size()));
    return holds(order, left.text()->compare(*right.text()), 0);
  }
  if (left.list() && right.list() && left.list()->is_tuple == right.list()->is_tuple)
    return compare_lists(run, order, *left.list(), *right.list());
  run.fail("a {} and a {} have no order: compare values of one type", left.type_name(), right.type_name());
}

bool contains(TemplateRun& run, const TemplateValue& container, const TemplateValue& value) {
  if (const MarkedText* text = container.text()) {
    if (!value.text()) run.fail("a {} cannot be in a string: give a string before `in`", value.type_name());
    run.charge_text(text->size() + value.text()->size());
    return find_text(*text, *value.text()) != MarkedView::npos;
  }
  if (const TemplateDict* dict = container.dict()) return dict->find(run, value) != nullptr;
  TemplateIterator* const iterator = iterate(run, container);
  if (!iterator) run.fail("a {} has no items: give a list, string or dict after `in`", container.type_name());
  while (const auto item = iterator->next(run))
    if (is_same(*item, value) || is_equal(run, *item, value)) return true;
  return false;
}

TemplateIterator* iterate_with(TemplateRun& run, NextFunction next) {
  return run.make<FunctionIterator>(std::move(next));
}

TemplateIterator* iterate_items(TemplateRun& run, std::vector<TemplateValue> items) {
  return run.make<ListIterator>(std::make_shared<const TemplateList>(TemplateList{std::move(items)}));
}

TemplateIterator* iterate(TemplateRun& run, const TemplateValue& value) {
  if (const auto* list = std::get_if<ListPtr>(&value.data())) return run.make<ListIterator>(*list);
  if (const auto* text = std::get_if<StringPtr>(&value.data()))
    return iterate_with(run, [text = *text, at = size_t{0}](TemplateRun& of) mutable -> std::optional<TemplateValue> {
      if (at >= text->text.size()) return std::nullopt;
      return of.text(MarkedText(1, text->text[at++]));
    });
  if (const auto* dict = std::get_if<DictPtr>(&value.data()))
    return iterate_with(run, [dict = *dict, at = size_t{0}](TemplateRun&) mutable -> std::optional<TemplateValue> {
      if (at >= dict->entries().size()) return std::nullopt;
      return dict->entries()[at++].first;
    });
  if (value.is_undefined()) return iterate_items(run, {});
  return value.object() ? value.object()->iterate(run) : nullptr;
}

TemplateIterator* iterate_reversed(TemplateRun& run, const TemplateValue& value) {
  if (value.object()) return value.object()->iterate_reversed(run);
  if (!value.list() && !value.string() && !value.dict() && !value.is_undefined()) return nullptr;
  auto items = items_of(run, value);
  std::reverse(items.begin(), items.end());
  return iterate_items(run, std::move(items));
}

std::vector<TemplateValue> items_of(TemplateRun& run, const TemplateValue& value) {
  TemplateIterator* const iterator = iterate(run, value);
  if (!iterator) run.fail("a {} has no items: give a list, string, dict or range", value.type_name());
  std::vector<TemplateValue> items;
  while (auto item = iterator->next(run)) items.push_back(std::move(*item));
  return items;
}

std::optional<int64_t> length_of(TemplateRun& run, const TemplateValue& value) {
  if (value.is_undefined()) return 0;
  if (const MarkedText* text = value.text()) return static_cast<int64_t>(text->size());
  if (const TemplateList* list = value.list()) return static_cast<int64_t>(list->items.size());
  if (const TemplateDict* dict = value.dict()) return static_cast<int64_t>(dict->entries().size());
  return value.object() ? value.object()->length(run) : std::nullopt;
}

}  // namespace zt::data::jinja
