#include "template/value/value.h"

#include <algorithm>
#include <cmath>

#include "template/value/compare.h"
#include "template/value/run.h"

namespace zt::data::jinja {

const TemplateString* TemplateValue::string() const {
  const auto* pointer = std::get_if<StringPtr>(&data_);
  return pointer ? pointer->get() : nullptr;
}

const MarkedText* TemplateValue::text() const {
  const TemplateString* pointer = string();
  return pointer ? &pointer->text : nullptr;
}

const TemplateList* TemplateValue::list() const {
  const auto* pointer = std::get_if<ListPtr>(&data_);
  return pointer ? pointer->get() : nullptr;
}

const TemplateDict* TemplateValue::dict() const {
  const auto* pointer = std::get_if<DictPtr>(&data_);
  return pointer ? pointer->get() : nullptr;
}

const UndefinedValue* TemplateValue::undefined() const {
  const auto* pointer = std::get_if<UndefinedPtr>(&data_);
  return pointer ? pointer->get() : nullptr;
}

TemplateObject* TemplateValue::object() const {
  const auto* pointer = std::get_if<TemplateObject*>(&data_);
  return pointer ? *pointer : nullptr;
}

std::optional<int64_t> TemplateValue::as_index() const {
  if (const bool* value = boolean()) return *value ? 1 : 0;
  if (const int64_t* value = integer()) return *value;
  return std::nullopt;
}

std::string TemplateValue::type_name() const {
  if (TemplateObject* const value = object()) return value->type_name();
  if (const TemplateList* value = list()) return value->is_tuple ? "tuple" : "list";
  constexpr const char* kNames[] = {"NoneType", "Undefined", "bool", "int", "float", "str", "list", "dict", "object"};
  return kNames[data_.index()];
}

int TemplateValue::depth() const {
  if (const TemplateList* value = list()) return value->depth;
  if (const TemplateDict* value = dict()) return value->depth();
  return 0;
}

std::optional<size_t> TemplateDict::index_of(TemplateRun& run, const TemplateValue& key, size_t hash) const {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (is_equal(run, entries_[it->second].first, key)) return it->second;
  return std::nullopt;
}

void TemplateDict::set(TemplateRun& run, const TemplateValue& key, const TemplateValue& value) {
  const auto hash = hash_of(run, key);
  if (!hash) run.fail("a {} cannot be a key of a dict, because it is not hashable", key.type_name());
  if (const auto index = index_of(run, key, *hash)) {
    entries_[*index].second = value;
  } else {
    index_.emplace(*hash, entries_.size());
    entries_.emplace_back(key, value);
  }
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
}

const TemplateValue* TemplateDict::find(TemplateRun& run, const TemplateValue& key) const {
  const auto hash = hash_of(run, key);
  if (!hash) run.fail("a {} cannot be a key of a dict, because it is not hashable", key.type_name());
  const auto index = index_of(run, key, *hash);
  return index ? &entries_[*index].second : nullptr;
}

TemplateObject::~TemplateObject() = default;

TemplateValue TemplateObject::call(TemplateRun& run, const CallArguments&) {
  run.fail("a {} cannot be called", type_name());
}

std::optional<TemplateValue> TemplateObject::attribute(TemplateRun&, const std::string&) {
  return std::nullopt;
}

std::optional<int64_t> TemplateObject::length(TemplateRun&) {
  return std::nullopt;
}

TemplateValue TemplateObject::at(TemplateRun& run, int64_t) {
  run.fail("a {} has no items", type_name());
}

TemplateIterator* TemplateObject::iterate(TemplateRun&) {
  return nullptr;
}

TemplateIterator* TemplateObject::iterate_reversed(TemplateRun&) {
  return nullptr;
}

bool TemplateObject::equals(TemplateRun&, TemplateObject& other) {
  return this == &other;
}

void TemplateObject::print(TemplateRun& run, MarkedText&) {
  run.fail("a {} cannot be printed: Python prints its address. Print its items, such as those of `x | list`", type_name());
}

std::optional<size_t> hash_of(TemplateRun& run, const TemplateValue& value) {
  run.charge(1);
  if (const auto index = value.as_index()) return std::hash<int64_t>()(*index);
  if (const double* number = value.number()) {
    const bool is_integer = *number == std::floor(*number) && std::abs(*number) < 9e18;
    return is_integer ? std::hash<int64_t>()(static_cast<int64_t>(*number)) : std::hash<double>()(*number);
  }
  if (const MarkedText* text = value.text()) {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char32_t character : *text) hash = (hash ^ code_point(character)) * 1099511628211u;
    run.charge_text(text->size());
    return hash;
  }
  if (const TemplateList* list = value.list()) {
    if (!list->is_tuple) return std::nullopt;
    size_t hash = list->items.size();
    for (const TemplateValue& item : list->items) {
      const auto of_item = hash_of(run, item);
      if (!of_item) return std::nullopt;
      hash = hash * 1000003u ^ *of_item;
    }
    return hash;
  }
  if (value.dict()) return std::nullopt;
  if (TemplateObject* const object = value.object()) {
    const bool is_range = object->is_sequence();  // equal ranges are different objects
    return is_range ? size_t{1} : std::hash<const void*>()(object);
  }
  return value.data().index();
}

}  // namespace zt::data::jinja
