#include "template/methods/access.h"

#include <algorithm>
#include <set>

#include "template/library/objects.h"
#include "template/value/compare.h"
#include "template/value/unicode.h"

namespace zt::data::jinja {

namespace {

// Methods of lists and dicts that would change them.
const std::set<std::string_view> kListMutations = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
const std::set<std::string_view> kDictMutations = {"clear", "pop", "popitem", "setdefault", "update"};
// Attributes of Python's types that templates do not need.
const std::set<std::string_view> kLeftOutOfStrings = {"casefold",  "encode",      "format_map", "isidentifier",
                                                      "isnumeric", "isprintable", "maketrans",  "translate"};
const std::set<std::string_view> kLeftOutOfNumbers = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                                      "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
                                                      "numerator",        "real",      "to_bytes"};

TemplateValue no_attribute(TemplateRun& run, const TemplateValue& object, const std::string& name) {
  return run.undefined(
      message("a value of type {} has no attribute '{}': check it by `is defined` first", object.type_name(), name));
}

void refuse_left_out(TemplateRun& run, const TemplateValue& object, const std::string& name) {
  const bool is_number = object.as_index() || object.number();
  if ((object.string() && kLeftOutOfStrings.count(name) > 0) || (is_number && kLeftOutOfNumbers.count(name) > 0))
    run.fail("the attribute '{}' of type {} is not supported in chat templates", name, object.type_name());
}

bool is_mutation(const TemplateValue& object, const std::string& name) {
  if (object.dict()) return kDictMutations.count(name) > 0;
  return object.list() && !object.list()->is_tuple && kListMutations.count(name) > 0;
}

MethodFunction find_method(const TemplateValue& object, const std::string& name) {
  if (object.dict()) return find_dict_method(name);
  if (object.list()) return object.list()->is_tuple ? find_tuple_method(name) : find_list_method(name);
  if (!object.string()) return nullptr;
  if (const MethodFunction method = find_string_method(name)) return method;
  if (const MethodFunction method = find_string_test_method(name)) return method;
  return find_split_method(name);
}

// Returns the item of a sequence or dict, or nullopt if there is none.
std::optional<TemplateValue> find_item(TemplateRun& run, const TemplateValue& object, const TemplateValue& key) {
  if (const TemplateDict* dict = object.dict()) {
    if (!hash_of(run, key)) return std::nullopt;
    const TemplateValue* const found = dict->find(run, key);
    return found ? std::optional(*found) : std::nullopt;
  }
  auto index = key.as_index();
  const bool is_sequence = object.string() || object.list() || (object.object() && object.object()->is_sequence());
  if (!index || !is_sequence) return std::nullopt;
  const int64_t length = *length_of(run, object);
  if (*index < 0) *index += length;
  if (*index < 0 || *index >= length) return std::nullopt;
  const auto at = static_cast<size_t>(*index);
  if (const TemplateString* string = object.string()) return run.text(MarkedText(1, string->text[at]), string->is_markup);
  if (const TemplateList* list = object.list()) return list->items[at];
  return object.object()->at(run, *index);
}

struct SliceBounds {
  int64_t begin, end, step, count;
};

// Returns nullopt if a bound is no index.
std::optional<SliceBounds> slice_bounds(TemplateRun& run, const TemplateValue& begin, const TemplateValue& end,
                                        const TemplateValue& step, int64_t length) {
  for (const TemplateValue* each : {&begin, &end, &step})
    if (!each->is_none() && !each->as_index()) return std::nullopt;
  const int64_t by = step.as_index().value_or(1);
  if (by == 0) run.fail("the step of a slice is 0: give another step");
  // Python's rules: indices below 0 count from the end, and all are clipped to the sequence.
  const auto clip = [&](const TemplateValue& bound, int64_t fallback) {
    const auto index = bound.as_index();
    if (!index) return fallback;
    const int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? length - 1 : length;
    return std::clamp(*index < 0 ? *index + length : *index, lowest, highest);
  };
  const int64_t first = clip(begin, by < 0 ? length - 1 : 0), last = clip(end, by < 0 ? -1 : length);
  const int64_t distance = by < 0 ? first - last : last - first;
  if (distance <= 0) return SliceBounds{first, last, by < 0 ? int64_t{-1} : int64_t{1}, 0};
  // A step beyond the length gives one item, whatever it is. This avoids overflow.
  const int64_t stride = by < 0 ? -std::max(by, -length - 1) : std::min(by, length + 1);
  return SliceBounds{first, last, by < 0 ? -stride : stride, (distance - 1) / stride + 1};
}

}  // namespace

std::optional<TemplateValue> find_attribute(TemplateRun& run, const TemplateValue& object, const std::string& name) {
  if (name.starts_with("__") && name.ends_with("__") && name.size() > 4)
    return run.undefined(message("the attribute '{}' is not safe, so templates have no access to it", name));
  if (is_mutation(object, name))
    return run.undefined(
        message("'{}' would change a {}, but values in a template do not change (its sandbox is immutable): make a "
                "new value, such as by `+`",
                name, object.type_name()));
  if (object.list() && object.list()->is_group && (name == "grouper" || name == "list"))
    return object.list()->items[name == "list" ? 1 : 0];
  refuse_left_out(run, object, name);
  if (const MethodFunction method = find_method(object, name))
    return run.make<FunctionObject>(name, [object, method](TemplateRun& of, const CallArguments& arguments) {
      if (object.text()) of.charge_text(object.text()->size());  // the result may be shorter than the work
      return method(of, object, arguments);
    });
  return object.object() ? object.object()->attribute(run, name) : std::nullopt;
}

TemplateValue get_attribute(TemplateRun& run, const TemplateValue& object, const std::string& name, const TemplateValue& key) {
  run.refuse_undefined(object);
  if (auto attribute = find_attribute(run, object, name)) return std::move(*attribute);
  if (auto item = find_item(run, object, key)) return std::move(*item);
  return no_attribute(run, object, name);
}

TemplateValue get_item(TemplateRun& run, const TemplateValue& object, const TemplateValue& key) {
  run.refuse_undefined(object);
  if (auto item = find_item(run, object, key)) return std::move(*item);
  if (key.text()) run.charge_text(key.text()->size());
  const std::string name = key.text() ? to_utf8(*key.text()) : "of type " + key.type_name();
  if (key.text())
    if (auto attribute = find_attribute(run, object, name)) return std::move(*attribute);
  return no_attribute(run, object, name);
}

TemplateValue get_slice(TemplateRun& run, const TemplateValue& object, const TemplateValue& begin, const TemplateValue& end,
                        const TemplateValue& step) {
  run.refuse_undefined(object);
  const bool is_sequence = object.string() || object.list() || (object.object() && object.object()->is_sequence());
  const auto bounds = is_sequence ? slice_bounds(run, begin, end, step, *length_of(run, object)) : std::nullopt;
  if (!bounds) run.fail("a {} has no such slice: slice a string or list, by integers", object.type_name());
  if (const auto* range = dynamic_cast<RangeObject*>(object.object()))
    return range->slice(run, bounds->begin, bounds->end, bounds->step, bounds->count);
  if (const TemplateString* string = object.string()) {
    MarkedText text;
    for (int64_t i = 0; i < bounds->count; ++i)
      text.push_back(string->text[static_cast<size_t>(bounds->begin + i * bounds->step)]);
    return run.text(std::move(text), string->is_markup);
  }
  std::vector<TemplateValue> items;
  for (int64_t i = 0; i < bounds->count; ++i)
    items.push_back(object.list()->items[static_cast<size_t>(bounds->begin + i * bounds->step)]);
  return run.list(std::move(items), object.list()->is_tuple);
}

AttributePath::AttributePath(TemplateRun& run, const TemplateValue& path) {
  if (path.is_none()) return;
  const MarkedText* const text = path.text();
  if (!text) {
    parts_.push_back(path);
    return;
  }
  MarkedView rest = *text;
  while (true) {
    const MarkedView part = rest.substr(0, rest.find(U'.'));
    const bool is_number = !part.empty() && part.size() < 18 && std::all_of(part.begin(), part.end(), [](char32_t character) {
      return code_point(character) >= '0' && code_point(character) <= '9';
    });
    if (is_number) parts_.emplace_back(int64_t{std::stoll(to_utf8(part))});
    else parts_.push_back(run.text(MarkedText(part)));
    if (part.size() == rest.size()) return;
    rest.remove_prefix(part.size() + 1);
  }
}

TemplateValue AttributePath::get(TemplateRun& run, TemplateValue object, const TemplateValue* fallback) const {
  for (const TemplateValue& part : parts_) {
    object = get_item(run, object, part);
    if (fallback && object.is_undefined()) object = *fallback;
  }
  return object;
}

}  // namespace zt::data::jinja
