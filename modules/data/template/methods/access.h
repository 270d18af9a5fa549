// Attributes, items and slices of values, by the rules of jinja2's immutable sandbox.
#pragma once

#include <map>

#include "template/value/run.h"

namespace zt::data::jinja {

// Returns `object.name`: an attribute or method, or else the item with this key, or else an undefined value. `key` is the name as
// a string. Throws Fault if the object is undefined.
TemplateValue get_attribute(TemplateRun& run, const TemplateValue& object, const std::string& name, const TemplateValue& key);
// Returns `object[key]`: an item, or else the attribute with this name, or else an undefined value. Throws as get_attribute.
TemplateValue get_item(TemplateRun& run, const TemplateValue& object, const TemplateValue& key);
// Returns `object[begin:end:step]`. A bound that is none is absent. Throws Fault for an object without slices.
TemplateValue get_slice(TemplateRun& run, const TemplateValue& object, const TemplateValue& begin, const TemplateValue& end,
                        const TemplateValue& step);
// Returns the attribute or method, without items, or nullopt.
std::optional<TemplateValue> find_attribute(TemplateRun& run, const TemplateValue& object, const std::string& name);

// A path of attributes such as "a.b.0", of the filters map, sort and others.
class AttributePath {
 public:
  AttributePath(TemplateRun& run, const TemplateValue& path);
  // Returns the item at the end of the path; `fallback`, if it is not null, in place of each item that is undefined.
  TemplateValue get(TemplateRun& run, TemplateValue object, const TemplateValue* fallback = nullptr) const;

 private:
  std::vector<TemplateValue> parts_;
};

using MethodFunction = TemplateValue (*)(TemplateRun&, const TemplateValue& self, const CallArguments&);
// Each returns null if the type has no such method.
MethodFunction find_string_method(std::string_view name);
MethodFunction find_string_test_method(std::string_view name);
MethodFunction find_split_method(std::string_view name);
MethodFunction find_list_method(std::string_view name);
MethodFunction find_tuple_method(std::string_view name);
MethodFunction find_dict_method(std::string_view name);

// Returns the text with occurrences of `old` replaced, at most `count` of them; a negative count means all.
MarkedText replace_text(TemplateRun& run, MarkedView text, MarkedView old, MarkedView with, int64_t count);

}  // namespace zt::data::jinja
