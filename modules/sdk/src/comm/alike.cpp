#include "zt/comm/alike.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zt/base/error.h"
#include "zt/base/hash.h"

namespace zt {

namespace {

std::string text_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + "=" + value + "\n";
  return text;
}

const std::string* find(const Facts& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, &Facts::value_type::first);
  return found == facts.end() ? nullptr : &found->second;
}

// Throws Misuse for the first fact of `of_first` or `of_other` that differs.
[[noreturn]] void refuse(const Facts& of_first, const Facts& of_other, size_t other, const std::string& group,
                         const std::string& why) {
  const auto refuse_one = [&](const std::string& name, const std::string& first, const std::string& second) {
    misuse("{} is {} on rank 0 and {} on rank {} of '{}': {}; give all ranks the same", name, first, second, other, group, why);
  };
  for (const auto& [name, text] : of_first) {
    const std::string* theirs = find(of_other, name);
    if (!theirs || *theirs != text) refuse_one(name, text, theirs ? *theirs : kNotGiven);
  }
  for (const auto& [name, text] : of_other) {
    if (!find(of_first, name)) refuse_one(name, kNotGiven, text);
  }
  misuse("the ranks 0 and {} of '{}' give the same options in another order: make layers in the same order on all ranks", other,
         group);
}

}  // namespace

void check_alike(const Facts& mine, Communicator* control, const std::string& why) {
  if (!control) return;
  const at::Tensor own = at::full({1}, static_cast<int64_t>(stable_hash(text_of(mine))), at::kLong);
  const at::Tensor all = at::empty({control->size()}, at::kLong);
  control->all_gather(all, own).synchronize();
  const auto* hashes = all.const_data_ptr<int64_t>();
  const auto* other = std::find_if(hashes, hashes + control->size(), [&](int64_t hash) { return hash != hashes[0]; });
  if (other == hashes + control->size()) return;
  const std::vector<Value> facts = control->all_gather_values(Value::from_json(mine), "compares options");
  const auto rank = static_cast<size_t>(other - hashes);
  refuse(facts[0].to_json().get<Facts>(), facts[rank].to_json().get<Facts>(), rank, control->name(), why);
}

}  // namespace zt
