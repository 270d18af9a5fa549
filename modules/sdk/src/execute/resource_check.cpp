#include "zt/execute/resource_check.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "zt/base/error.h"
#include "zt/base/hash.h"

namespace zt {

namespace {

// A tensor of a unit and the resource that it belongs to.
struct Held {
  ResourceKind kind;
  int unit;
  at::Tensor tensor;
};

const char* name_of(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::param:
      return "param";
    case ResourceKind::master:
      return "master";
    case ResourceKind::grad:
      return "grad";
    default:
      return "state";
  }
}

std::vector<Held> held_by(const StepState& state) {
  std::vector<Held> all;
  const auto add = [&](ResourceKind kind, int unit, const at::Tensor& tensor) {
    if (tensor.defined() && tensor.numel() > 0) all.push_back({kind, unit, tensor});
  };
  for (const Unit& unit : state.units) {
    if (!unit.plan.held) continue;
    if (!unit.is_node_shared()) add(ResourceKind::param, unit.index, unit.full);
    add(ResourceKind::master, unit.index, unit.master);
    add(ResourceKind::grad, unit.index, unit.grad);
    add(ResourceKind::grad, unit.index, unit.grad_shard);
    add(ResourceKind::grad, unit.index, unit.grad_sum);
    for (const auto& [name, tensor] : unit.state) add(ResourceKind::state, unit.index, tensor);
  }
  return all;
}

uint64_t contents(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return stable_hash(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

class CheckedHandler : public ActionHandler {
 public:
  explicit CheckedHandler(std::shared_ptr<ActionHandler> handler) : handler_(std::move(handler)) {}

  // The work is waited for, so that all changes are there.
  Work start(const Action& action, StepState& state) override {
    const std::vector<Held> watched = not_written(action, state);
    std::vector<uint64_t> before;
    for (const Held& held : watched) before.push_back(contents(held.tensor));
    handler_->start(action, state).synchronize();
    for (size_t i = 0; i < watched.size(); ++i) {
      if (contents(watched[i].tensor) == before[i]) continue;
      misuse(
          "the action {} changed the {} of unit {} ('{}'), which it does not declare: add \"{}\" to its writes, or other actions may "
          "use it at the same time (found by ZT_CHECK_RESOURCES)",
          action_text(action), name_of(watched[i].kind), watched[i].unit, state.model->units[watched[i].unit].name,
          name_of(watched[i].kind));
    }
    return {};
  }

 private:
  // Returns the tensors that share no memory with one that the action declares to write or to free.
  static std::vector<Held> not_written(const Action& action, const StepState& state) {
    const Resources declared = resources_of(action, *state.model);
    const auto is_written = [&](const Held& held) {
      const auto is_it = [&](const Resource& resource) { return resource.kind == held.kind && resource.index == held.unit; };
      return std::ranges::any_of(declared.writes, is_it) || std::ranges::any_of(declared.frees, is_it);
    };
    std::vector<Held> all = held_by(state);
    std::set<const c10::StorageImpl*> written;
    for (const Held& held : all) {
      if (is_written(held)) written.insert(held.tensor.storage().unsafeGetStorageImpl());
    }
    std::erase_if(all, [&](const Held& held) { return written.contains(held.tensor.storage().unsafeGetStorageImpl()); });
    return all;
  }

  std::shared_ptr<ActionHandler> handler_;
};

}  // namespace

bool checks_resources() {
  const char* given = std::getenv("ZT_CHECK_RESOURCES");
  const std::string_view value = given ? given : "0";
  if (value != "0" && value != "1") misuse("ZT_CHECK_RESOURCES={}: give 1 to check what actions change, or 0", value);
  return value == "1";
}

std::shared_ptr<ActionHandler> with_resource_check(std::shared_ptr<ActionHandler> handler) {
  return std::make_shared<CheckedHandler>(std::move(handler));
}

}  // namespace zt
