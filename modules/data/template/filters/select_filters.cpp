// Filters that apply a filter or a test to each item: map, select, reject, selectattr, rejectattr.
#include "template/library/arguments.h"
#include "template/library/names.h"
#include "template/methods/access.h"
#include "template/value/compare.h"

namespace zt::data::jinja {

namespace {

using ItemFunction = std::function<TemplateValue(TemplateRun&, const TemplateValue&)>;

// Returns the name of a filter or test, which is the argument at `index`, and removes the arguments up to it.
std::string take_name(TemplateRun& run, CallArguments& arguments, size_t index) {
  const TemplateValue name = arguments.positional[index];
  run.refuse_undefined(name);
  if (!name.text()) run.fail("the name of a filter or test must be a string, not a {}: put it in quotes", name.type_name());
  arguments.positional.erase(arguments.positional.begin(), arguments.positional.begin() + static_cast<std::ptrdiff_t>(index) + 1);
  return to_utf8(*name.text());
}

ItemFunction map_function(TemplateRun& run, CallArguments arguments) {
  const bool has_attribute = !arguments.named.empty() && arguments.positional.empty();
  if (has_attribute) {
    const BoundArguments bound(run, "map", arguments, {"attribute", "default"}, 1);
    const TemplateValue fallback = bound.find_given(1) ? *bound.find(1) : TemplateValue();
    return [path = AttributePath(run, bound[0]), fallback](TemplateRun& of, const TemplateValue& item) {
      return path.get(of, item, fallback.is_none() ? nullptr : &fallback);
    };
  }
  if (arguments.positional.empty()) run.fail("'map' needs the name of a filter, or attribute=...");
  const std::string name = take_name(run, arguments, 0);
  return [name, arguments](TemplateRun& of, const TemplateValue& item) { return call_filter(of, name, item, arguments); };
}

TemplateValue map_filter(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  return iterate_with(run,
                      [value, arguments, function = ItemFunction(), source = static_cast<TemplateIterator*>(nullptr)](
                          TemplateRun& of) mutable -> std::optional<TemplateValue> {
                        if (!source) {
                          if (!is_true(of, value)) return std::nullopt;
                          function = map_function(of, arguments);
                          source = iterate(of, value);
                          if (!source) of.fail("a {} has no items: give a list to `map`", value.type_name());
                        }
                        const auto item = source->next(of);
                        return item ? std::optional(function(of, *item)) : std::nullopt;
                      });
}

// Returns whether an item passes: by its truth or by a test, of itself or of an attribute.
using ItemTest = std::function<bool(TemplateRun&, const TemplateValue&)>;

ItemTest item_test(TemplateRun& run, CallArguments arguments, bool is_of_attribute) {
  std::optional<AttributePath> path;
  if (is_of_attribute) {
    if (arguments.positional.empty()) run.fail("'selectattr' and 'rejectattr' need the name of an attribute");
    path.emplace(run, arguments.positional.front());
  }
  const size_t index = is_of_attribute ? 1 : 0;
  const bool has_test = arguments.positional.size() > index;
  const std::string name = has_test ? take_name(run, arguments, index) : std::string();
  return [path, has_test, name, arguments](TemplateRun& of, const TemplateValue& item) {
    const TemplateValue tested = path ? path->get(of, item) : item;
    return has_test ? call_test(of, name, tested, arguments) : is_true(of, tested);
  };
}

template <bool keeps, bool is_of_attribute>
TemplateValue select_items(TemplateRun& run, const TemplateValue& value, const CallArguments& arguments) {
  return iterate_with(run,
                      [value, arguments, test = ItemTest(), source = static_cast<TemplateIterator*>(nullptr)](
                          TemplateRun& of) mutable -> std::optional<TemplateValue> {
                        if (!source) {
                          if (!is_true(of, value)) return std::nullopt;
                          test = item_test(of, arguments, is_of_attribute);
                          source = iterate(of, value);
                          if (!source) of.fail("a {} has no items: give a list to `select`", value.type_name());
                        }
                        while (auto item = source->next(of))
                          if (test(of, *item) == keeps) return item;
                        return std::nullopt;
                      });
}

}  // namespace

void add_select_filters(FilterTable& table) {
  table.insert({{"map", map_filter},
                {"reject", select_items<false, false>},
                {"rejectattr", select_items<false, true>},
                {"select", select_items<true, false>},
                {"selectattr", select_items<true, true>}});
}

}  // namespace zt::data::jinja
