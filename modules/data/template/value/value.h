// Values of templates. Strings, lists and dicts never change once they exist, because the sandbox of chat templates is immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "template/value/text.h"

namespace zt::data::jinja {

class TemplateDict;
class TemplateIterator;
class TemplateObject;
class TemplateRun;
class TemplateValue;

// The value of a name that does not exist. It prints nothing; most operations on it fail with `message`.
struct UndefinedValue {
  std::string message;
};

struct TemplateString {
  MarkedText text;
  bool is_markup = false;  // a result of the filters `escape` and `safe`
};

struct TemplateList {
  std::vector<TemplateValue> items;
  bool is_tuple = false;
  bool is_group = false;  // an item of the filter `groupby`: a pair with the attributes `grouper` and `list`
  int depth =
      1;  // 1 + the largest depth of an item that is a list or a dict. It is bounded, so that recursion over values is, too.
};

using UndefinedPtr = std::shared_ptr<const UndefinedValue>;
using StringPtr = std::shared_ptr<const TemplateString>;
using ListPtr = std::shared_ptr<const TemplateList>;
using DictPtr = std::shared_ptr<const TemplateDict>;

class TemplateValue {
 public:
  struct None {};
  // The TemplateRun owns objects until the end of the rendering.
  using Data = std::variant<None, UndefinedPtr, bool, int64_t, double, StringPtr, ListPtr, DictPtr, TemplateObject*>;

  TemplateValue() = default;  // none
  template <class T>
  requires(std::is_constructible_v<Data, T> && !std::is_same_v<std::decay_t<T>, TemplateValue>) TemplateValue(T&& data)
      : data_(std::forward<T>(data)) {}  // NOLINT: implicit, from any type that a value can hold

  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_undefined() const { return std::holds_alternative<UndefinedPtr>(data_); }
  bool is_string() const { return std::holds_alternative<StringPtr>(data_); }
  // Each returns null if the value is of another type. They do not convert: a bool is no integer here.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* number() const { return std::get_if<double>(&data_); }
  const MarkedText* text() const;
  const TemplateString* string() const;
  const TemplateList* list() const;
  const TemplateDict* dict() const;
  const UndefinedValue* undefined() const;
  TemplateObject* object() const;
  const Data& data() const { return data_; }

  // Returns an integer for an integer and a bool, as Python does where it needs an index.
  std::optional<int64_t> as_index() const;
  // Returns the name of the type as Python has it: "str", "int", "NoneType".
  std::string type_name() const;
  // Returns the depth of a list or dict, and 0 for any other value.
  int depth() const;

 private:
  Data data_;
};

// A dict, in the order of insertion. It is filled by its builder and constant afterwards.
class TemplateDict {
 public:
  using Entry = std::pair<TemplateValue, TemplateValue>;
  // Replaces the value of an equal key. Throws Fault if the key is not hashable (a list or a dict).
  void set(TemplateRun& run, const TemplateValue& key, const TemplateValue& value);
  // Returns null if there is no such key. Throws as `set`.
  const TemplateValue* find(TemplateRun& run, const TemplateValue& key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::optional<size_t> index_of(TemplateRun& run, const TemplateValue& key, size_t hash) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // hash of a key to the index of its entry
  int depth_ = 1;
};

// Arguments of a call, a filter or a test.
struct CallArguments {
  std::vector<TemplateValue> positional;
  std::vector<std::pair<std::string, TemplateValue>> named;
};

// A value with identity: a function, macro, namespace, range, loop or iterator.
class TemplateObject {
 public:
  virtual ~TemplateObject();
  virtual std::string type_name() const = 0;
  virtual bool is_callable() const { return false; }
  // Throws Fault if the object cannot be called.
  virtual TemplateValue call(TemplateRun& run, const CallArguments& arguments);
  virtual std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name);
  // Returns nullopt if the object has no length.
  virtual std::optional<int64_t> length(TemplateRun& run);
  // Returns whether indices and slices are allowed. `at` must be in 0 .. length - 1.
  virtual bool is_sequence() const { return false; }
  virtual TemplateValue at(TemplateRun& run, int64_t index);
  // Returns null if the object cannot be iterated.
  virtual TemplateIterator* iterate(TemplateRun& run);
  // Iterates from the last item to the first. Returns null if that is not possible.
  virtual TemplateIterator* iterate_reversed(TemplateRun& run);
  virtual bool equals(TemplateRun& run, TemplateObject& other);
  // Appends what Python prints. Throws Fault for an object whose text contains an address.
  virtual void print(TemplateRun& run, MarkedText& out);
};

// Returns each item once. As Python's generators it cannot be started again.
class TemplateIterator : public TemplateObject {
 public:
  std::string type_name() const override { return "generator"; }
  TemplateIterator* iterate(TemplateRun&) override { return this; }
  // Returns nullopt at the end, and then always.
  virtual std::optional<TemplateValue> next(TemplateRun& run) = 0;
};

// Returns nullopt for a value that is not hashable. Equal values have equal hashes: 1, 1.0 and true, too.
std::optional<size_t> hash_of(TemplateRun& run, const TemplateValue& value);

}  // namespace zt::data::jinja
