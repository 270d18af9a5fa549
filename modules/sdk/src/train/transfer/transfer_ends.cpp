#include "transfer_ends.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "train/store/owned_data.h"

namespace zt {

namespace {

constexpr int64_t kMoveWindow = int64_t{1} << 20;  // most elements that are moved at once to or from where they are not in memory

// Returns `times` stretches of a flat tensor as [times, count].
at::Tensor stretches(const at::Tensor& flat, int64_t first, int64_t count, int64_t times, int64_t stride) {
  return flat.as_strided({times, count}, {times == 1 ? count : stride, 1}, flat.storage_offset() + first);
}

class FlatSource final : public TransferSource {
 public:
  explicit FlatSource(at::Tensor flat) : flat_(std::move(flat)) {}
  at::Tensor elements(const TransferRun& run) const override {
    return stretches(flat_, run.from, run.count, run.times, run.from_stride);
  }
  HostElements host() const override { return host_elements(flat_); }

 private:
  const at::Tensor flat_;
};

class FlatTarget final : public TransferTarget {
 public:
  explicit FlatTarget(at::Tensor flat) : flat_(std::move(flat)) {}
  void take(const TransferRun& run, const at::Tensor& values) override {
    copy_elements(stretches(flat_, run.to, run.count, run.times, run.to_stride), values, CacheUse::bypass);
  }
  HostElements host() const override { return host_elements(flat_); }

 private:
  const at::Tensor flat_;
};

// A tensor of a unit's owned part that does not lie in memory as a whole.
class OwnedAway {
 public:
  OwnedAway(const Store& store, int param, std::string tensor, at::ScalarType dtype)
      : state_(store.state()),
        unit_(store.unit_of(param)),
        tensor_(std::move(tensor)),
        place_(store.owned(param).place),
        options_(at::TensorOptions(store.state().links->device()).dtype(dtype)) {}

  at::Tensor read(int64_t first, int64_t count, int64_t times, int64_t stride) const {
    const at::Tensor all = at::empty({times, count}, options_);
    for_each_window(first, count, times, stride, [&](int64_t begin, int64_t elements, int64_t t, int64_t rows) {
      const at::Tensor window = at::empty({elements}, options_);
      owned_data::read(state_, unit_, tensor_, place_ + begin, window);
      all.narrow(0, t, rows).copy_(stretches(window, 0, count, rows, stride));
    });
    return all;
  }
  void write(int64_t first, int64_t count, int64_t times, int64_t stride, const at::Tensor& values) const {
    for_each_window(first, count, times, stride, [&](int64_t begin, int64_t elements, int64_t t, int64_t rows) {
      at::Tensor window = at::empty({elements}, options_);
      if (rows > 1) owned_data::read(state_, unit_, tensor_, place_ + begin, window);
      stretches(window, 0, count, rows, stride).copy_(values.narrow(0, t, rows));
      owned_data::write(state_, unit_, tensor_, place_ + begin, window);
    });
  }

 private:
  // Calls visit(begin, elements, t, rows) for ranges of elements that hold whole stretches, `rows` of them from number t on.
  template <class Visit>
  static void for_each_window(int64_t first, int64_t count, int64_t times, int64_t stride, const Visit& visit) {
    const int64_t at_once = times == 1 ? 1 : std::max<int64_t>(1, kMoveWindow / stride);
    for (int64_t t = 0; t < times; t += at_once) {
      const int64_t rows = std::min(at_once, times - t);
      visit(first + t * stride, (rows - 1) * stride + count, t, rows);
    }
  }

  const StepState& state_;
  const Unit& unit_;
  const std::string tensor_;
  const int64_t place_;
  const at::TensorOptions options_;
};

class AwaySource final : public TransferSource {
 public:
  explicit AwaySource(OwnedAway owned) : owned_(std::move(owned)) {}
  at::Tensor elements(const TransferRun& run) const override {
    return owned_.read(run.from, run.count, run.times, run.from_stride);
  }

 private:
  const OwnedAway owned_;
};

class AwayTarget final : public TransferTarget {
 public:
  explicit AwayTarget(OwnedAway owned) : owned_(std::move(owned)) {}
  void take(const TransferRun& run, const at::Tensor& values) override {
    owned_.write(run.to, run.count, run.times, run.to_stride, values);
  }

 private:
  const OwnedAway owned_;
};

// Gives the values to a target, and rounded to its dtype to the ones after it.
class TargetChain final : public TransferTarget {
 public:
  TargetChain(std::vector<std::shared_ptr<TransferTarget>> targets, at::ScalarType exact)
      : targets_(std::move(targets)), exact_(exact) {}
  void take(const TransferRun& run, const at::Tensor& values) override {
    const at::Tensor rounded = values.to(exact_);
    for (const auto& target : targets_) target->take(run, rounded);
  }

 private:
  const std::vector<std::shared_ptr<TransferTarget>> targets_;
  const at::ScalarType exact_;
};

// Where the owned part of a parameter lies: in memory as a whole, or elsewhere.
struct OwnedPlaceOf {
  at::Tensor flat;
  at::ScalarType dtype;
};

OwnedPlaceOf place_of_owned(const Store& store, int param, const std::string& tensor) {
  const Unit& unit = store.unit_of(param);
  const bool is_master = tensor == "master" && unit.has_own_master;
  const Precision& types = store.plan().main().precision;
  const at::ScalarType dtype = is_master ? types.master() : store.state().model->units[unit.index].element_type(types.params);
  if (unit.is_sliced(is_master ? UnitData::state : UnitData::params)) return {{}, dtype};
  const OwnedRun run = store.owned(param);
  return {(is_master ? unit.master : unit.shard).narrow(0, run.place, run.count), dtype};
}

}  // namespace

std::shared_ptr<const TransferSource> flat_source(at::Tensor flat) {
  return std::make_shared<FlatSource>(std::move(flat));
}

std::shared_ptr<TransferTarget> flat_target(at::Tensor flat) {
  return std::make_shared<FlatTarget>(std::move(flat));
}

std::shared_ptr<const TransferSource> owned_source(const Store& store, int param, const std::string& tensor) {
  const OwnedPlaceOf place = place_of_owned(store, param, tensor);
  if (place.flat.defined()) return flat_source(place.flat);
  return std::make_shared<AwaySource>(OwnedAway(store, param, tensor, place.dtype));
}

std::shared_ptr<TransferTarget> owned_target(const Store& store, int param, const std::vector<std::string>& tensors) {
  std::vector<std::shared_ptr<TransferTarget>> targets;
  for (const std::string& tensor : tensors) {
    const OwnedPlaceOf place = place_of_owned(store, param, tensor);
    if (place.flat.defined()) targets.push_back(flat_target(place.flat));
    else targets.push_back(std::make_shared<AwayTarget>(OwnedAway(store, param, tensor, place.dtype)));
  }
  if (targets.size() == 1) return targets.front();
  return std::make_shared<TargetChain>(std::move(targets), place_of_owned(store, param, tensors.front()).dtype);
}

}  // namespace zt
