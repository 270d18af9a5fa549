#include "saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <mutex>

namespace zt {

namespace {

thread_local SavedTensors* list = nullptr;

// A view, because an output refers to the node that saves it: the two would keep each other.
class SavedView final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedView(SavedTensors& to) : list_(to) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    view_ = tensor.detach();
    list_.emplace_back(view_.getIntrusivePtr());
  }
  at::Tensor call_unpack_hook() override { return view_; }

 private:
  SavedTensors& list_;  // used while it packs only
  at::Tensor view_;
};

// LibTorch asks its engine for hooks (torch/csrc/autograd/engine.h).
class ListingEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return list ? std::make_unique<SavedView>(*list) : nullptr;
  }
};

// Never destroyed, because LibTorch may use it until the process ends.
torch::autograd::Engine& listing_engine() {
  static auto& engine = *new ListingEngine;
  return engine;
}

}  // namespace

SavedTensorsScope::SavedTensorsScope(SavedTensors* to) : before_(list) {
  static std::once_flag once;
  if (to) std::call_once(once, [] { torch::autograd::set_default_engine_stub(listing_engine); });
  list = to;
}

SavedTensorsScope::~SavedTensorsScope() {
  list = before_;
}

}  // namespace zt
