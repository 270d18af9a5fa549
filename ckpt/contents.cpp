#include "contents.h"

#include <set>

#include "zt/error.h"
#include "zt/stateful.h"
#include "zt/tensor.h"

namespace zt::ckpt {

namespace {

class Collector final : public Visitor {
 public:
  explicit Collector(Contents& contents) : contents_(contents) {}
  void enter(const std::string& prefix) { prefix_ = prefix; }

  bool is_load() const override { return false; }
  void tensor(const std::string& name, const std::vector<int64_t>& shape, Piece piece) override {
    note(prefix_ + name);
    check(prefix_ + name, shape, piece);
    contents_.parts.push_back({prefix_ + name, shape, {piece.boxes, piece.first, piece.count}, piece.data, {}});
  }
  void attributes(const Value::Table& attributes) override { contents_.parts.back().attributes = attributes; }
  void end_of_tensors() override {}
  void value(const std::string& name, Value& value) override {
    note(prefix_ + name);
    contents_.values.emplace(prefix_ + name, value);
  }

 private:
  static void check(const std::string& name, const std::vector<int64_t>& shape, const Piece& piece) {
    const std::string wrong = validate_region(shape, {piece.boxes, piece.first, piece.count});
    if (!wrong.empty()) misuse("the object that holds '{}' gives a wrong piece of it: {}", name, wrong);
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
  std::string prefix_;
  std::set<std::string> names_;
};

}  // namespace

Contents contents_of(const Objects& objects) {
  Contents contents;
  Collector collector(contents);
  for (const auto& [prefix, value] : objects) {
    const auto* object = value.get_if<Object>();
    if (!object) {
      collector.enter("");
      Value copy = value;
      collector.value(prefix.substr(0, prefix.size() - (prefix.ends_with('/') ? 1 : 0)), copy);
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
