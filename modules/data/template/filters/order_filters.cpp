// Filters that compare items: sort, dictsort, groupby, min, max, unique.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Returns the value by which an item is compared: strings in lower case unless case matters.
TemplateValue comparison_key(TemplateRun& run, const TemplateValue& value, bool is_case_sensitive) {
  return value.text() && !is_case_sensitive ? run.text(lower(*value.text())) : value;
}

using KeyedItem = std::pair<TemplateValue, TemplateValue>;  // the key, and the item

// Sorts by the keys. Items whose keys are equal keep their order, also if the order is reversed.
void sort_keyed(TemplateRun& run, std::vector<KeyedItem>& items, bool is_reversed) {
  std::stable_sort(items.begin(), items.end(), [&](const KeyedItem& left, const KeyedItem& right) {
    return is_reversed ? compare(run, Order::less, right.first, left.first) : compare(run, Order::less, left.first, right.first);
  });
}

std::vector<TemplateValue> values_of(const std::vector<KeyedItem>& items) {
  std::vector<TemplateValue> values;
  for (const auto& [key, value] : items) values.push_back(value);
  return values;
}

TemplateValue sort_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool is_case_sensitive = bound.truth(1, false);
  std::vector<AttributePath> paths;
  const TemplateValue attribute = bound.find(2) ? *bound.find(2) : TemplateValue();
  if (const MarkedText* text = attribute.text()) {
    for (size_t begin = 0; begin != MarkedText::npos;) {
      const size_t comma = text->find(U',', begin);
      paths.emplace_back(run, run.text(text->substr(begin, comma - begin)));
      begin = comma == MarkedText::npos ? comma : comma + 1;
    }
  } else {
    paths.emplace_back(run, attribute);
  }
  std::vector<KeyedItem> items;
  for (const TemplateValue& item : items_of(run, value)) {
    std::vector<TemplateValue> keys;
    for (const AttributePath& path : paths) keys.push_back(comparison_key(run, path.get(run, item), is_case_sensitive));
    items.emplace_back(run.list(std::move(keys)), item);
  }
  sort_keyed(run, items, bound.truth(0, false));
  return run.list(values_of(items));
}

TemplateValue dictsort_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const MarkedText key_name = from_ascii("key");
  const MarkedText& by = bound.text(1, key_name);
  const bool is_by_value = by == from_ascii("value");
  if (!is_by_value && by != key_name) run.fail("'dictsort' sorts by '{}', but must sort by key or value", to_utf8(by));
  run.refuse_undefined(value);
  if (!value.dict()) run.fail("the filter 'dictsort' needs a dict, not a {}", value.type_name());
  std::vector<KeyedItem> items;
  for (const auto& [key, item] : value.dict()->entries())
    items.emplace_back(comparison_key(run, is_by_value ? item : key, bound.truth(0, false)), run.tuple({key, item}));
  sort_keyed(run, items, bound.truth(2, false));
  return run.list(values_of(items));
}

TemplateValue extreme(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments, Order order) {
  const BoundArguments bound(run, "min or max", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(run, bound.find(1) ? *bound.find(1) : TemplateValue());
  std::optional<KeyedItem> best;
  for (const TemplateValue& item : items_of(run, value)) {
    TemplateValue key = comparison_key(run, path.get(run, item), bound.truth(0, false));
    if (!best || compare(run, order, key, best->first)) best.emplace(std::move(key), item);
  }
  return best ? best->second : run.undefined("there is no smallest or largest item, because the list is empty");
}

TemplateValue min_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  return extreme(run, value, arguments, Order::less);
}

TemplateValue max_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  return extreme(run, value, arguments, Order::greater);
}

TemplateValue groupby_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(run, bound[0]);
  const TemplateValue* const fallback = bound.find_given(1);
  std::vector<KeyedItem> items;
  for (const TemplateValue& item : items_of(run, value))
    items.emplace_back(comparison_key(run, path.get(run, item, fallback), bound.truth(2, false)), item);
  sort_keyed(run, items, false);
  std::vector<TemplateValue> groups;
  for (size_t begin = 0; begin < items.size();) {
    std::vector<TemplateValue> members;
    size_t end = begin;
    for (; end < items.size() && is_equal(run, items[end].first, items[begin].first); ++end) members.push_back(items[end].second);
    if (end == begin) members.push_back(items[end++].second);  // a key that is not equal to itself: NaN
    groups.push_back(run.group(path.get(run, members.front(), fallback), run.list(members)));
    begin = end;
  }
  return run.list(std::move(groups));
}

TemplateValue unique_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(run, bound.find(1) ? *bound.find(1) : TemplateValue());
  return iterate_with(
      run,
      [value, path, is_case_sensitive = bound.truth(0, false), seen = TemplateDict(),
       source = static_cast<TemplateIterator*>(nullptr)](TemplateRun& of) mutable -> std::optional<TemplateValue> {
        if (!source) source = iterate(of, value);
        if (!source) of.fail("a {} has no items: give a list to `unique`", value.type_name());
        while (auto item = source->next(of)) {
          const TemplateValue key = comparison_key(of, path.get(of, *item), is_case_sensitive);
          if (seen.find(of, key)) continue;
          seen.set(of, key, TemplateValue());
          return item;
        }
        return std::nullopt;
      });
}

}  // namespace

void add_order_filters(FilterTable& table) {
  table.insert({{"dictsort", dictsort_filter},
                {"groupby", groupby_filter},
                {"max", max_filter},
                {"min", min_filter},
                {"sort", sort_filter},
                {"unique", unique_filter}});
}

}  // namespace zt::data::jinja
