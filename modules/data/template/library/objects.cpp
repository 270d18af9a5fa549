#include "template/library/objects.h"

#include <algorithm>

#include "template/library/arguments.h"
#include "template/value/print.h"

namespace zt::data::jinja {

TemplateValue FunctionObject::call(TemplateRun& run, const CallArguments& arguments) {
  run.charge(1);
  return function_(run, arguments);
}

TemplateValue RangeObject::make(TemplateRun& run, const CallArguments& arguments) {
  constexpr int64_t kLargest = 100'000;
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) run.fail("'range' takes one to three integers");
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    const auto value = arguments.positional[i].as_index();
    if (!value) run.fail("'range' takes integers, not a {}", arguments.positional[i].type_name());
    bounds[count == 1 ? 1 : i] = *value;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) run.fail("the step of 'range' is 0: give another step");
  const auto distance = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const auto items = distance <= 0 ? __int128{0} : (distance - 1) / stride + 1;
  if (items > kLargest) run.fail("'range' has more than {} items, the limit: use a smaller range", kLargest);
  return run.make<RangeObject>(begin, end, step, static_cast<int64_t>(items));
}

TemplateValue RangeObject::slice(TemplateRun& run, int64_t begin, int64_t end, int64_t step, int64_t count) const {
  const auto place = [&](int64_t index) {
    int64_t offset = 0, result = 0;
    if (__builtin_mul_overflow(index, step_, &offset) || __builtin_add_overflow(begin_, offset, &result))
      run.fail("the slice of a range does not fit into 64 bits: use smaller numbers");
    return result;
  };
  int64_t stride = 0;
  if (__builtin_mul_overflow(step_, step, &stride)) run.fail("the step of a slice does not fit into 64 bits: use a smaller one");
  return run.make<RangeObject>(place(begin), place(end), stride, count);
}

std::optional<int64_t> RangeObject::index_of(TemplateRun& run, const TemplateValue& value) {
  for (int64_t i = 0; i < count_; ++i)
    if (is_equal(run, at(run, i), value)) return i;
  return std::nullopt;
}

std::optional<TemplateValue> RangeObject::attribute(TemplateRun& run, const std::string& name) {
  if (name == "start") return begin_;
  if (name == "stop") return end_;
  if (name == "step") return step_;
  if (name != "count" && name != "index") return std::nullopt;
  return run.make<FunctionObject>(name, [this, name](TemplateRun& of, const CallArguments& arguments) -> TemplateValue {
    const BoundArguments bound(of, name, arguments, {"value"}, 1, NamedArguments::refused);
    const auto index = index_of(of, bound[0]);
    if (name == "count") return int64_t{index ? 1 : 0};
    if (!index) of.fail("the range does not contain the value: check it by `in` first");
    return *index;
  });
}

TemplateIterator* RangeObject::iterate(TemplateRun& run) {
  return iterate_with(run, [this, i = int64_t{0}](TemplateRun&) mutable -> std::optional<TemplateValue> {
    if (i >= count_) return std::nullopt;
    return begin_ + i++ * step_;
  });
}

TemplateIterator* RangeObject::iterate_reversed(TemplateRun& run) {
  return iterate_with(run, [this, i = count_](TemplateRun&) mutable -> std::optional<TemplateValue> {
    if (i <= 0) return std::nullopt;
    return begin_ + --i * step_;
  });
}

bool RangeObject::equals(TemplateRun&, TemplateObject& other) {
  const auto* range = dynamic_cast<RangeObject*>(&other);
  if (!range || range->count_ != count_) return false;
  return count_ == 0 || (begin_ == range->begin_ && (count_ == 1 || step_ == range->step_));
}

void RangeObject::print(TemplateRun&, MarkedText& out) {
  append_ascii(step_ == 1 ? fmt::format("range({}, {})", begin_, end_) : fmt::format("range({}, {}, {})", begin_, end_, step_), 0,
               out);
}

std::string DictView::type_name() const {
  return part_ == DictPart::keys ? "dict_keys" : part_ == DictPart::values ? "dict_values" : "dict_items";
}

std::vector<TemplateValue> DictView::items(TemplateRun& run) const {
  std::vector<TemplateValue> items;
  for (const auto& [key, value] : dict_->entries()) {
    run.charge(1);
    if (part_ == DictPart::items) items.push_back(run.tuple({key, value}));
    else items.push_back(part_ == DictPart::keys ? key : value);
  }
  return items;
}

TemplateIterator* DictView::iterate_reversed(TemplateRun& run) {
  auto reversed = items(run);
  std::reverse(reversed.begin(), reversed.end());
  return iterate_items(run, std::move(reversed));
}

bool DictView::equals(TemplateRun& run, TemplateObject& other) {
  auto* view = dynamic_cast<DictView*>(&other);
  if (!view || part_ == DictPart::values || view->part_ != part_) return this == &other;
  if (view->dict_->entries().size() != dict_->entries().size()) return false;
  for (const TemplateValue& item : items(run))
    if (!contains(run, view, item)) return false;
  return true;
}

void DictView::print(TemplateRun& run, MarkedText& out) {
  append_ascii(type_name() + "(", 0, out);
  append_repr(run, run.list(items(run)), out);
  out.push_back(')');
}

std::optional<TemplateValue> NamespaceObject::attribute(TemplateRun&, const std::string& name) {
  for (const auto& [key, value] : attributes_)
    if (key == name) return value;
  return std::nullopt;
}

void NamespaceObject::set(TemplateRun& run, const std::string& name, const TemplateValue& value) {
  if (name.starts_with('_'))
    run.fail("'{}' cannot be an attribute of a namespace: give a name without an underscore in front", name);
  for (auto& [key, old] : attributes_)
    if (key == name) {
      old = value;
      return;
    }
  run.charge(attributes_.size());
  attributes_.emplace_back(name, value);
}

void NamespaceObject::print(TemplateRun& run, MarkedText& out) {
  append_ascii("<Namespace {", 0, out);
  bool is_first = true;
  for (const auto& [name, value] : attributes_) {
    if (!is_first) append_ascii(", ", 0, out);
    is_first = false;
    append_repr(run, run.text(from_utf8(name, 0).value_or(MarkedText())), out);
    append_ascii(": ", 0, out);
    append_repr(run, value, out);
  }
  append_ascii("}>", 0, out);
}

TemplateDict make_dict(TemplateRun& run, const CallArguments& arguments) {
  TemplateDict dict;
  if (arguments.positional.size() > 1) run.fail("'dict' takes at most one positional argument");
  if (!arguments.positional.empty()) {
    const TemplateValue& source = arguments.positional.front();
    run.refuse_undefined(source);
    if (source.dict()) {
      dict = *source.dict();
    } else {
      for (const TemplateValue& pair : items_of(run, source)) {
        const auto items = items_of(run, pair);
        if (items.size() != 2) run.fail("an item of the argument of 'dict' has {} items, not 2: give pairs", items.size());
        dict.set(run, items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(run, run.text(from_utf8(name, 0).value_or(MarkedText())), value);
  return dict;
}

}  // namespace zt::data::jinja
