#include "zt/execute/resource_check.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>

#include "zt/base/error.h"
#include "zt/base/hash.h"

namespace zt {

namespace {

// A tensor and the resource that it belongs to.
struct WatchedTensor {
  Resource resource;
  at::Tensor tensor;
};

// Returns the tensors of all resources; of those with micro-batches, of this one, or none for -1.
std::vector<WatchedTensor> held_by(const StepState& state, int32_t micro_batch) {
  std::vector<WatchedTensor> all;
  for (const ResourceId type : resource_ids()) {
    const TensorsOf* tensors = tensors_of(type);
    const bool has_micro_batch = type_of(type).has_micro_batch;
    if (!tensors || (has_micro_batch && micro_batch < 0)) continue;
    for (int32_t index = 0; index < count_of(type_of(type).index, *state.model); ++index) {
      const Resource resource{.type = type, .index = index, .micro_batch = has_micro_batch ? micro_batch : -1};
      for (const NamedTensor& named : (*tensors)(resource, state)) {
        const bool is_watched = named.tensor.defined() && named.tensor.numel() > 0 && named.memory != Memory::node;
        if (is_watched) all.push_back({resource, named.tensor});
      }
    }
  }
  return all;
}

// "the grad of unit 'blocks.1'"
std::string described(const Resource& resource, const ModelInfo& model) {
  const ResourceType& type = type_of(resource.type);
  return fmt::format("the {} of {}", type.name, owner_text(type.index, resource.index, model));
}

uint64_t contents(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().cpu().contiguous();
  return stable_hash(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
}

// Returns the tensors that share no memory with one that the action declares to write or to free.
std::vector<WatchedTensor> not_written(const Action& action, const StepState& state) {
  const Resources declared = resources_of(action, *state.model);
  const auto is_written = [&](const WatchedTensor& held) {
    const auto is_it = [&](const Resource& resource) {
      return resource.type == held.resource.type && resource.index == held.resource.index;
    };
    return std::ranges::any_of(declared.writes, is_it) || std::ranges::any_of(declared.frees, is_it);
  };
  std::vector<WatchedTensor> all = held_by(state, action.micro_batch);
  std::set<const c10::StorageImpl*> written;
  for (const WatchedTensor& held : all) {
    if (is_written(held)) written.insert(held.tensor.storage().unsafeGetStorageImpl());
  }
  std::erase_if(all, [&](const WatchedTensor& held) { return written.contains(held.tensor.storage().unsafeGetStorageImpl()); });
  return all;
}

// The work is waited for, so that all changes are there.
void start_checked(ActionHandler& handler, const Action& action, StepState& state) {
  const std::vector<WatchedTensor> watched = not_written(action, state);
  std::vector<uint64_t> before;
  for (const WatchedTensor& held : watched) before.push_back(contents(held.tensor));
  handler.start(action, state).synchronize();
  for (size_t i = 0; i < watched.size(); ++i) {
    if (contents(watched[i].tensor) == before[i]) continue;
    misuse(
        "the action {} changed {}, which it does not declare: add \"{}\" to its writes, or other actions may use it at the same "
        "time (found by ZT_CHECK_RESOURCES)",
        action_text(action), described(watched[i].resource, *state.model), type_of(watched[i].resource.type).name);
  }
}

class CheckedHandler final : public ActionHandler {
 public:
  explicit CheckedHandler(std::shared_ptr<ActionHandler> handler) : handler_(std::move(handler)) {}
  Work start(const Action& action, StepState& state) override {
    start_checked(*handler_, action, state);
    return {};
  }
  std::string place() const override { return handler_->place(); }

 private:
  std::shared_ptr<ActionHandler> handler_;
};

}  // namespace

// Not environment(): a test may set the variable between two trainers, on the thread that makes them.
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
