// Truth, equality and order of values, as in Python.
#pragma once

#include "template/value/run.h"

namespace zt::data::jinja {

bool is_true(TemplateRun& run, const TemplateValue& value);
bool is_equal(TemplateRun& run, const TemplateValue& left, const TemplateValue& right);
// Returns whether both are one object, as the operator `is` of Python says. Numbers and strings are one object if they are equal.
bool is_same(const TemplateValue& left, const TemplateValue& right);

enum class Order : uint8_t { less, less_equal, greater, greater_equal };
// Throws Fault if the types have no order, such as a string and a number.
bool compare(TemplateRun& run, Order order, const TemplateValue& left, const TemplateValue& right);

// Returns whether `value` is in a string, list, dict or another container. Throws Fault if `container` is none.
bool contains(TemplateRun& run, const TemplateValue& container, const TemplateValue& value);

// Returns null if the value cannot be iterated. A dict gives its keys, a string its characters, an undefined value nothing.
TemplateIterator* iterate(TemplateRun& run, const TemplateValue& value);
// Iterates from the last item to the first. Returns null for a value whose items have no order from the end, such as an iterator.
TemplateIterator* iterate_reversed(TemplateRun& run, const TemplateValue& value);
// Returns all items. Throws Fault if the value cannot be iterated.
std::vector<TemplateValue> items_of(TemplateRun& run, const TemplateValue& value);
// Returns an iterator that calls a function for each item. The function returns nullopt at the end.
using NextFunction = std::function<std::optional<TemplateValue>(TemplateRun&)>;
TemplateIterator* iterate_with(TemplateRun& run, NextFunction next);
// Iterates a vector.
TemplateIterator* iterate_items(TemplateRun& run, std::vector<TemplateValue> items);
// Returns the length, or nullopt if the value has none.
std::optional<int64_t> length_of(TemplateRun& run, const TemplateValue& value);

}  // namespace zt::data::jinja
