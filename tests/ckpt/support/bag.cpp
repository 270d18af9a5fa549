#include "bag.h"

#include <nlohmann/json.hpp>

namespace zt {
ZT_DEFINE_OBJECT(test::Bag, "Bag")
}

namespace zt::test {

namespace {

Bag::Held hold(const at::Tensor& whole, int64_t first, int64_t count) {
  Region region = whole_region(whole.sizes().vec());
  region.first = first;
  region.count = count;
  return {whole.sizes().vec(), region, whole.reshape({-1}).narrow(0, first, count).clone()};
}

}  // namespace

std::shared_ptr<Bag> make_bag(int rank, int ranks, int content) {
  auto bag = std::make_shared<Bag>();
  const auto numbers = [&](std::vector<int64_t> shape, at::ScalarType dtype) {
    const int64_t numel = c10::multiply_integers(shape);
    return (at::arange(numel, at::kDouble) * 0.37 + content * 1000).to(dtype).reshape(shape);
  };
  const auto cut = [&](const at::Tensor& whole) {
    const int64_t first = whole.numel() * rank / ranks, end = whole.numel() * (rank + 1) / ranks;
    return hold(whole, first, end - first);
  };
  bag->tensors["cut"] = cut(numbers({37, 11}, at::kFloat));
  bag->tensors["half"] = cut(numbers({1000}, at::kBFloat16));
  bag->tensors["few"] = cut(numbers({1}, at::kDouble));
  const at::Tensor same = numbers({5, 3, 2}, at::kLong), scalar = numbers({}, at::kDouble), none = numbers({0, 4}, at::kFloat);
  bag->tensors["same"] = hold(same, 0, same.numel());
  bag->tensors["scalar"] = hold(scalar, 0, 1);
  bag->tensors["none"] = hold(none, 0, 0);
  bag->values["step"] = content;
  bag->values["note"] = Value::Table{{"text", "content " + std::to_string(content)}, {"list", Value::List{1, 2.5, true}}};
  return bag;
}

bool equal(const Bag& a, const Bag& b) {
  for (const auto& [name, held] : a.tensors) {
    if (!held.data.equal(b.tensors.at(name).data)) return false;
  }
  for (const auto& [name, value] : a.values) {
    if (value.to_json() != b.values.at(name).to_json()) return false;
  }
  return true;
}

}  // namespace zt::test
