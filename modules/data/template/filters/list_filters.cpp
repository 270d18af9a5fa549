// Filters of lists and dicts that do not look at the values: default, first, batch, reverse and others.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/methods/access.h"
#include "template/value/compare.h"
#include "template/value/print.h"

namespace zt::data::jinja {

namespace {

// Returns an iterator over the items that `make` returns. It calls `make` when the first item is asked for, as a generator of
// Python does, so that an error shows up then.
TemplateValue generate(TemplateRun& run, std::function<std::vector<TemplateValue>(TemplateRun&)> make) {
  return iterate_with(run, [make, source = static_cast<TemplateIterator*>(nullptr)](TemplateRun& of) mutable {
    if (!source) source = iterate_items(of, make(of));
    return source->next(of);
  });
}

TemplateValue default_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "default", arguments, {"default_value", "boolean"});
  const bool is_replaced = value.is_undefined() || (bound.truth(1, false) && !is_true(run, value));
  if (!is_replaced) return value;
  return bound.find(0) ? *bound.find(0) : run.ascii("");
}

TemplateValue attr_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "attr", arguments, {"name"}, 1);
  run.refuse_undefined(value);
  run.charge_text(bound.text(0).size());
  const std::string name = to_utf8(bound.text(0));
  if (auto attribute = find_attribute(run, value, name)) return std::move(*attribute);
  return run.undefined(message("a value of type {} has no attribute '{}'", value.type_name(), name));
}

TemplateValue length_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "length", arguments);
  const auto length = length_of(run, value);
  if (!length) run.fail("a {} has no length: convert it by the filter `list` if it has items", value.type_name());
  return *length;
}

TemplateValue list_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "list", arguments);
  return run.list(items_of(run, value));
}

TemplateValue first_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "first", arguments);
  TemplateIterator* const iterator = iterate(run, value);
  if (!iterator) run.fail("a {} has no items: give a list, string or dict to `first`", value.type_name());
  auto item = iterator->next(run);
  return item ? std::move(*item) : run.undefined("there is no first item, because the list is empty");
}

TemplateValue last_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "last", arguments);
  TemplateIterator* const iterator = iterate_reversed(run, value);
  if (!iterator) run.fail("a {} has no last item: convert it by the filter `list` if it has items", value.type_name());
  auto item = iterator->next(run);
  return item ? std::move(*item) : run.undefined("there is no last item, because the list is empty");
}

TemplateValue reverse_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "reverse", arguments);
  if (const TemplateString* string = value.string())
    return run.text(MarkedText(string->text.rbegin(), string->text.rend()), string->is_markup);
  if (TemplateIterator* const iterator = iterate_reversed(run, value)) return iterator;
  auto items = items_of(run, value);
  std::reverse(items.begin(), items.end());
  return run.list(std::move(items));
}

TemplateValue items_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  refuse_arguments(run, "items", arguments);
  return generate(run, [value](TemplateRun& of) {
    std::vector<TemplateValue> items;
    if (value.is_undefined()) return items;
    if (!value.dict()) of.fail("the filter 'items' needs a dict, not a {}", value.type_name());
    for (const auto& [key, item] : value.dict()->entries()) items.push_back(of.tuple({key, item}));
    return items;
  });
}

TemplateValue batch_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "batch", arguments, {"linecount", "fill_with"}, 1);
  const TemplateValue count = bound[0], fill = bound.find_given(1) ? *bound.find(1) : TemplateValue();
  return generate(run, [value, count, fill](TemplateRun& of) {
    std::vector<TemplateValue> lines, line;
    for (const TemplateValue& item : items_of(of, value)) {
      if (is_equal(of, static_cast<int64_t>(line.size()), count)) lines.push_back(of.list(std::exchange(line, {})));
      line.push_back(item);
    }
    if (line.empty()) return lines;
    if (!fill.is_none() && compare(of, Order::less, static_cast<int64_t>(line.size()), count)) {
      const auto length = count.as_index();
      if (!length) of.fail("the argument 'linecount' of 'batch' must be an integer, not a {}", count.type_name());
      of.check_length(static_cast<size_t>(*length));
      line.resize(static_cast<size_t>(*length), fill);
    }
    lines.push_back(of.list(std::move(line)));
    return lines;
  });
}

TemplateValue slice_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  const BoundArguments bound(run, "slice", arguments, {"slices", "fill_with"}, 1);
  const TemplateValue count = bound[0], fill = bound.find_given(1) ? *bound.find(1) : TemplateValue();
  return generate(run, [value, count, fill](TemplateRun& of) {
    const auto items = items_of(of, value);
    const auto slices = count.as_index();
    if (!slices || *slices == 0) of.fail("the argument 'slices' of 'slice' must be an integer other than 0");
    of.check_length(static_cast<size_t>(std::max<int64_t>(*slices, 0)));
    std::vector<TemplateValue> lists;
    size_t begin = 0;
    for (int64_t i = 0; i < *slices; ++i) {
      const auto length = static_cast<int64_t>(items.size());
      const bool is_longer = i < length % *slices;
      const size_t end = begin + static_cast<size_t>(length / *slices + (is_longer ? 1 : 0));
      std::vector<TemplateValue> part(items.begin() + static_cast<std::ptrdiff_t>(begin),
                                      items.begin() + static_cast<std::ptrdiff_t>(end));
      if (!fill.is_none() && !is_longer) part.push_back(fill);
      lists.push_back(of.list(std::move(part)));
      begin = end;
    }
    return lists;
  });
}

}  // namespace

void add_list_filters(FilterTable& table) {
  table.insert({{"attr", attr_filter},
                {"batch", batch_filter},
                {"count", length_filter},
                {"d", default_filter},
                {"default", default_filter},
                {"first", first_filter},
                {"items", items_filter},
                {"last", last_filter},
                {"length", length_filter},
                {"list", list_filter},
                {"reverse", reverse_filter},
                {"slice", slice_filter}});
}

}  // namespace zt::data::jinja
