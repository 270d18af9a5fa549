// Objects that built-in functions return: functions, ranges, views of dicts, namespaces.
#pragma once

#include "template/value/compare.h"
#include "template/value/run.h"

namespace zt::data::jinja {

// A function or a method of a value.
class FunctionObject : public TemplateObject {
 public:
  using Function = std::function<TemplateValue(TemplateRun&, const CallArguments&)>;
  FunctionObject(std::string name, Function function) : name_(std::move(name)), function_(std::move(function)) {}
  std::string type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  TemplateValue call(TemplateRun& run, const CallArguments& arguments) override;

 private:
  std::string name_;
  Function function_;
};

class RangeObject : public TemplateObject {
 public:
  // Makes range(...) of Python. Throws Fault for a range of more than 100,000 items, the limit of jinja2's sandbox.
  static TemplateValue make(TemplateRun& run, const CallArguments& arguments);
  RangeObject(int64_t begin, int64_t end, int64_t step, int64_t count) : begin_(begin), end_(end), step_(step), count_(count) {}
  std::string type_name() const override { return "range"; }
  std::optional<int64_t> length(TemplateRun&) override { return count_; }
  bool is_sequence() const override { return true; }
  TemplateValue at(TemplateRun&, int64_t index) override { return begin_ + index * step_; }
  // `begin` and `end` are indices, which are clipped to the range.
  TemplateValue slice(TemplateRun& run, int64_t begin, int64_t end, int64_t step, int64_t count) const;
  std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name) override;
  TemplateIterator* iterate(TemplateRun& run) override;
  TemplateIterator* iterate_reversed(TemplateRun& run) override;
  bool equals(TemplateRun& run, TemplateObject& other) override;
  void print(TemplateRun& run, MarkedText& out) override;

 private:
  std::optional<int64_t> index_of(TemplateRun& run, const TemplateValue& value);

  int64_t begin_, end_, step_, count_;
};

enum class DictPart : uint8_t { keys, values, items };

// The result of dict.keys, dict.values or dict.items.
class DictView : public TemplateObject {
 public:
  DictView(DictPtr dict, DictPart part) : dict_(std::move(dict)), part_(part) {}
  std::string type_name() const override;
  std::optional<int64_t> length(TemplateRun&) override { return static_cast<int64_t>(dict_->entries().size()); }
  TemplateIterator* iterate(TemplateRun& run) override { return iterate_items(run, items(run)); }
  TemplateIterator* iterate_reversed(TemplateRun& run) override;
  bool equals(TemplateRun& run, TemplateObject& other) override;
  void print(TemplateRun& run, MarkedText& out) override;

 private:
  std::vector<TemplateValue> items(TemplateRun& run) const;

  DictPtr dict_;
  DictPart part_;
};

// The only value that a template can change.
class NamespaceObject : public TemplateObject {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<TemplateValue> attribute(TemplateRun& run, const std::string& name) override;
  // Throws Fault for a name that begins with an underscore.
  void set(TemplateRun& run, const std::string& name, const TemplateValue& value);
  void print(TemplateRun& run, MarkedText& out) override;

 private:
  std::vector<std::pair<std::string, TemplateValue>> attributes_;  // in the order of insertion
};

// Returns dict(...) of Python.
TemplateDict make_dict(TemplateRun& run, const CallArguments& arguments);

// Returns the built-in function of this name (range, dict, namespace and others), or nullopt.
std::optional<TemplateValue> find_global(TemplateRun& run, const std::string& name);

}  // namespace zt::data::jinja
