// An object with state for tests: tensors, of which each rank holds a part, and plain values.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>

#include "reshard/contents.h"
#include "zt/base/object.h"
#include "zt/base/stateful.h"

namespace zt::test {

struct Bag : Stateful {
  struct Held {
    std::vector<int64_t> shape;
    Region region;
    at::Tensor data;  // flat
  };

  std::map<std::string, Held> tensors;
  std::map<std::string, Value> values;

  void visit(Visitor& visitor) override {
    for (auto& [name, held] : tensors)
      visitor.tensor(name, held.shape, {held.region.boxes, held.region.first, held.region.count, held.data});
    visitor.end_of_tensors();
    for (auto& [name, value] : values) visitor.value(name, value);
  }
};

}  // namespace zt::test

namespace zt {
ZT_OBJECT(test::Bag)
}

namespace zt::test {

// Returns the bag of rank `rank` of `ranks`. Its tensors are: divided flat among the ranks, whole on every rank, without
// elements, without dims. `content` decides their values.
std::shared_ptr<Bag> make_bag(int rank, int ranks, int content);
bool equal(const Bag& a, const Bag& b);

inline ckpt::Objects objects_of(const std::shared_ptr<Bag>& bag) {
  return {{"bag/", Value(Object::of(bag))}};
}

}  // namespace zt::test
