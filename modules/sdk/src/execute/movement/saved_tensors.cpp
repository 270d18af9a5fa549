#include "saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

#include "zt/base/tensor.h"

namespace zt {

namespace {

thread_local SavedList listing;

// A view, because an output refers to the node that saves it: the two would keep each other.
class SavedView final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedView(SavedList to) : to_(std::move(to)) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    view_ = tensor.detach();
    version_ = view_._version();
    to_.to->emplace_back(view_.getIntrusivePtr());
  }
  // LibTorch leaves this check to hooks.
  at::Tensor call_unpack_hook() override {
    TORCH_CHECK(static_cast<int64_t>(view_._version()) == version_,
                "one of the variables needed for gradient computation has been modified by an inplace operation: ",
                describe(view_), ", saved by the forward of '", *to_.layer, "', is at version ", view_._version(),
                "; expected version ", version_, " instead");
    TORCH_CHECK(
        !is_away(view_), describe(view_), ", which the forward of '", *to_.layer,
        "' has saved, does not lie in memory: the backward of another layer, or of a script, needs it. Pass the tensor on as an "
        "output, or leave activations in memory");
    return view_;
  }

 private:
  const SavedList to_;  // its list is used while it packs only
  at::Tensor view_;
  int64_t version_ = 0;
};

// LibTorch asks its engine for hooks (torch/csrc/autograd/engine.h).
class ListingEngine final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return listing.to ? std::make_unique<SavedView>(listing) : nullptr;
  }
};

// Never destroyed, because LibTorch may use it until the process ends.
torch::autograd::Engine& listing_engine() {
  static auto& engine = *new ListingEngine;
  return engine;
}

// Before any backward: threads for devices are started for the first engine that runs one, and for no other.
[[maybe_unused]] const bool is_installed = [] {
  torch::autograd::set_default_engine_stub(listing_engine);
  return true;
}();

}  // namespace

bool is_away(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.has_storage() && tensor.storage().nbytes() == 0;
}

SavedTensorsScope::SavedTensorsScope(SavedTensors* to, const std::string& layer) : before_(listing) {
  listing = to ? SavedList{to, std::make_shared<const std::string>(layer)} : SavedList{};
}

SavedTensorsScope::~SavedTensorsScope() {
  listing = before_;
}

}  // namespace zt
