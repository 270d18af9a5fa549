// Methods of lists, tuples and dicts. Those that would change the value do not exist.
#include <algorithm>

#include "template/library/arguments.h"
#include "template/library/objects.h"
#include "template/methods/access.h"
#include "template/value/compare.h"

namespace zt::data::jinja {

namespace {

bool is_item(TemplateRun& run, const TemplateValue& item, const TemplateValue& value) {
  return is_same(item, value) || is_equal(run, item, value);
}

TemplateValue count_items(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "count", arguments, {"value"}, 1, NamedArguments::refused);
  int64_t count = 0;
  for (const TemplateValue& item : self.list()->items) count += is_item(run, item, bound[0]) ? 1 : 0;
  return count;
}

TemplateValue index_of_item(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "index", arguments, {"value", "start", "stop"}, 1, NamedArguments::refused);
  const auto& items = self.list()->items;
  const auto length = static_cast<int64_t>(items.size());
  const auto place = [&](int64_t index) { return std::clamp(index < 0 ? index + length : index, int64_t{0}, length); };
  const int64_t end = place(bound.integer(2, length));
  for (int64_t i = place(bound.integer(1, 0)); i < end; ++i)
    if (is_item(run, items[static_cast<size_t>(i)], bound[0])) return i;
  run.fail("the list does not contain the value: check it by `in` first");
}

TemplateValue copy_list(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "copy", arguments);
  return run.list(self.list()->items);
}

template <DictPart part>
TemplateValue view_of(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "a method of dicts", arguments);
  return run.make<DictView>(std::get<DictPtr>(self.data()), part);
}

TemplateValue get_from_dict(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  const BoundArguments bound(run, "get", arguments, {"key", "default"}, 1, NamedArguments::refused);
  if (const TemplateValue* value = self.dict()->find(run, bound[0])) return *value;
  return bound.find(1) ? *bound.find(1) : TemplateValue();
}

TemplateValue copy_dict(TemplateRun& run, const TemplateValue& self, const CallArguments& arguments) {
  refuse_arguments(run, "copy", arguments);
  return run.dict(*self.dict());
}

}  // namespace

MethodFunction find_tuple_method(std::string_view name) {
  if (name == "count") return count_items;
  return name == "index" ? index_of_item : nullptr;
}

MethodFunction find_list_method(std::string_view name) {
  return name == "copy" ? copy_list : find_tuple_method(name);
}

MethodFunction find_dict_method(std::string_view name) {
  if (name == "get") return get_from_dict;
  if (name == "items") return view_of<DictPart::items>;
  if (name == "keys") return view_of<DictPart::keys>;
  if (name == "values") return view_of<DictPart::values>;
  return name == "copy" ? copy_dict : nullptr;
}

}  // namespace zt::data::jinja
