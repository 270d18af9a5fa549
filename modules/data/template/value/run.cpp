#include "template/value/run.h"

#include <algorithm>

namespace zt::data::jinja {

void TemplateRun::fail_with(const std::string& text) const {
  fault("'{}' line {}: {}", name_, line_, text);
}

void TemplateRun::fail_steps() const {
  fail("the template takes more than {} steps, the limit: it loops too long, or the messages are too many", kMaxSteps);
}

void TemplateRun::fail_depth(int limit) const {
  fail("the nesting of calls is deeper than {}, the limit: end the recursion of the macro earlier", limit);
}

void TemplateRun::refuse_undefined(const TemplateValue& value) const {
  if (const UndefinedValue* undefined = value.undefined()) fail("{}", undefined->message);
}

void TemplateRun::check_length(size_t length) const {
  if (length > kMaxLength)
    fail("a string or list would have more than {} elements, the limit: make the messages shorter", kMaxLength);
}

TemplateValue TemplateRun::text(MarkedText text, bool is_markup) {
  check_length(text.size());
  charge_text(text.size());
  return std::make_shared<const TemplateString>(TemplateString{std::move(text), is_markup});
}

TemplateValue TemplateRun::list(std::vector<TemplateValue> items, bool is_tuple) {
  check_length(items.size());
  charge(items.size() / 4);
  const int depth = depth_above(items);
  return std::make_shared<const TemplateList>(TemplateList{std::move(items), is_tuple, false, depth});
}

TemplateValue TemplateRun::group(const TemplateValue& key, TemplateValue items) {
  std::vector<TemplateValue> pair = {key, std::move(items)};
  const int depth = depth_above(pair);
  return std::make_shared<const TemplateList>(TemplateList{std::move(pair), true, true, depth});
}

int TemplateRun::depth_above(const std::vector<TemplateValue>& items) const {
  int depth = 1;
  for (const TemplateValue& item : items) depth = std::max(depth, item.depth() + 1);
  if (depth > kMaxDepth) fail("lists are nested deeper than {}, the limit: make the template or the messages flatter", kMaxDepth);
  return depth;
}

TemplateValue TemplateRun::dict(TemplateDict dict) {
  check_length(dict.entries().size());
  charge(dict.entries().size() / 4);
  if (dict.depth() > kMaxDepth)
    fail("dicts are nested deeper than {}, the limit: make the template or the messages flatter", kMaxDepth);
  return std::make_shared<const TemplateDict>(std::move(dict));
}

TemplateValue TemplateRun::undefined(std::string message) {
  return std::make_shared<const UndefinedValue>(UndefinedValue{std::move(message)});
}

}  // namespace zt::data::jinja
