#include "packed_values.h"

#include "store.h"
#include "whole_tensors.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"

namespace zt {

void PackedValues::hash(const Store& store) {
  if (replacements_ == store.state().replacements) return;
  hashes_.clear();
  for (int param = 0; param < static_cast<int>(store.state().model->params.size()); ++param) {
    const ParamInfo& info = store.info(param);
    if (!info.is_packed()) continue;
    const at::Tensor values = whole_tensors::parameter(store, param).to(at::kFloat).cpu().contiguous();  // of packed values exact
    const std::string_view bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    hashes_[info.name] = fmt::format("{} {:016x}", word_of(info.pack.format), stable_hash(bytes));
  }
  replacements_ = store.state().replacements;
}

void PackedValues::visit(const Store& store, Visitor& visitor) {
  hash(store);
  if (hashes_.empty()) return;
  if (!visitor.is_load() && !visitor.precedes_load() && !store.plan().trains())
    misuse(
        "the model's matrices are packed, and nothing of it is trained: a checkpoint has plain numbers only, so it would be empty. "
        "Save the plain model, or its packed folder by ztoolkit quantise");
  Value value(hashes_);
  visitor.value("model/packed", value);  // names of parameters have a dot
  const auto* saved = value.get_if<Value::Table>();
  for (const auto& [name, own] : hashes_) {
    const auto found = saved ? saved->find(name) : Value::Table::const_iterator();
    const auto* text = saved && found != saved->end() ? found->second.get_if<std::string>() : nullptr;
    if (text && *text == *own.get_if<std::string>()) continue;
    misuse(
        "the packed matrix '{}' is not that of the trainer that was saved ({} here, {} there): a checkpoint does not hold packed "
        "matrices, so give the trainer those of the same base, in the same format, before the load",
        name, *own.get_if<std::string>(), text ? *text : "none");
  }
}

}  // namespace zt
