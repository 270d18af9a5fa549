#include "contents.h"

#include <algorithm>
#include <set>

#include "zt/base/error.h"
#include "zt/base/stateful.h"
#include "zt/base/tensor.h"

namespace zt::ckpt {

namespace {

class ContentsCollector final : public Visitor {
 public:
  ContentsCollector(Contents& contents, bool precedes_load) : contents_(contents), precedes_load_(precedes_load) {}
  void enter(const std::string& prefix) { prefix_ = prefix; }

  bool is_load() const override { return false; }
  bool precedes_load() const override { return precedes_load_; }
  void tensor(const std::string& name, const std::vector<int64_t>& shape, Piece piece) override {
    note(prefix_ + name);
    check(prefix_ + name, shape, piece);
    contents_.parts.push_back(
        {prefix_ + name, shape, {piece.boxes, piece.first, piece.count}, piece.data, std::move(piece.source)});
  }
  void attributes(const Value::Table& attributes) override { contents_.parts.back().attributes = attributes; }
  void rows_of_ranks(Rows rows) override { contents_.parts.back().rows = rows; }
  void end_of_tensors() override {}
  void value(const std::string& name, Value& value) override {
    note(prefix_ + name);
    contents_.values.emplace(prefix_ + name, value);
  }
  void kind(const std::string& name, const std::string& kind, const std::vector<std::string>& of) override {
    Value value(kind);
    this->value(name, value);
    StatedKind stated{prefix_ + name, kind, of};
    for (std::string& each : stated.of) each = prefix_ + each;
    contents_.kinds.push_back(std::move(stated));
  }
  void ignore(const std::vector<std::string>& prefixes) override {
    for (const std::string& each : prefixes) contents_.ignored.push_back(prefix_ + each);
  }

 private:
  static void check(const std::string& name, const std::vector<int64_t>& shape, const Piece& piece) {
    const std::string wrong = validate_region(shape, {piece.boxes, piece.first, piece.count});
    if (!wrong.empty()) misuse("the object that holds '{}' gives a wrong piece of it: {}", name, wrong);
    if (piece.source) return;
    if (piece.data.dim() != 1 || !piece.data.is_contiguous() || piece.data.numel() != piece.count)
      misuse("the object that holds '{}' gives a piece of {} elements with {}: its data must be flat, contiguous and as many",
             name, piece.count, describe(piece.data));
  }
  void note(const std::string& name) {
    if (!names_.insert(name).second)
      misuse(
          "two things that are to be saved have the name '{}': give the objects different names, as {{actor = ..., critic = ...}}",
          name);
  }

  Contents& contents_;
  const bool precedes_load_;
  std::string prefix_;
  std::set<std::string> names_;
};

// A table {kReference = name} stands for the tensor of that name. Value tensors need the prefix kValueTensors, because in a file
// the value's own path is a group.
constexpr const char* kReference = "zt.tensor";
constexpr const char* kValueTensors = "value_tensors/";

// Returns the plain value of this name with each tensor in it replaced by a reference. Passes the tensors to the collector if
// they are saved.
Value with_references(const std::string& name, const Value& value, ValueTensors tensors, ContentsCollector& collector) {
  if (const auto* tensor = value.get_if<at::Tensor>()) {
    if (tensors == ValueTensors::saved) {
      const auto sizes = tensor->sizes().vec();
      const Region whole = whole_region(sizes);
      collector.tensor(kValueTensors + name, sizes,
                       {whole.boxes, whole.first, whole.count, tensor->detach().contiguous().view({-1})});
    }
    return Value::Table{{kReference, kValueTensors + name}};
  }
  if (const auto* list = value.get_if<Value::List>()) {
    Value::List out;
    for (const Value& item : *list)
      out.push_back(with_references(fmt::format("{}/{}", name, out.size() + 1), item, tensors, collector));
    return out;
  }
  const auto* table = value.get_if<Value::Table>();
  if (!table) return value;
  Value::Table out;
  for (const auto& [key, item] : *table) {
    if (key == kReference) misuse("'{}' has a key '{}', which stands for a tensor in checkpoints: name it otherwise", name, key);
    out[key] = with_references(name + "/" + key, item, tensors, collector);
  }
  return out;
}

}  // namespace

bool StatedKind::holds(const std::string& other) const {
  return std::ranges::any_of(of, [&](const std::string& prefix) { return other.starts_with(prefix); });
}

void for_each_reference(Value& value, const std::function<void(Value&, const std::string&)>& each) {
  if (const auto* list = value.get_if<Value::List>()) {
    Value::List out = *list;
    for (Value& item : out) for_each_reference(item, each);
    value = std::move(out);
  } else if (const auto* table = value.get_if<Value::Table>()) {
    const auto name = table->find(kReference);
    if (name != table->end() && table->size() == 1 && name->second.get_if<std::string>()) {
      return each(value, std::string(*name->second.get_if<std::string>()));
    }
    Value::Table out = *table;
    for (auto& [key, item] : out) for_each_reference(item, each);
    value = std::move(out);
  }
}

Contents contents_of(const Objects& objects, ValueTensors tensors) {
  Contents contents;
  ContentsCollector collector(contents, tensors == ValueTensors::left_out);
  for (const auto& [prefix, value] : objects) {
    const auto* object = value.get_if<Object>();
    if (!object) {
      collector.enter("");
      const std::string name = prefix.substr(0, prefix.size() - (prefix.ends_with('/') ? 1 : 0));
      Value copy = tensors == ValueTensors::left_out ? Value() : with_references(name, value, tensors, collector);
      collector.value(name, copy);
      continue;
    }
    const auto stateful = object->stateful();
    if (!stateful) misuse("'{}' is a {}, which has no state to save", prefix, object->tag->name);
    collector.enter(prefix);
    stateful->visit(collector);
  }
  return contents;
}

}  // namespace zt::ckpt
