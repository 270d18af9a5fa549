#include "move_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "execute/step/step_parts.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/layer_extras.h"

namespace zt {

namespace {

void report(void* memory, int64_t bytes) {
  c10::reportMemoryUsageToProfiler(memory, bytes, 0, 0, at::kCPU);
}

// Returns a buffer, [bytes] uint8, that starts at a page.
at::Tensor make_buffer(int64_t bytes, at::Device device) {
  if (!device.is_cpu()) return at::empty({bytes}, at::device(device).dtype(at::kByte));
  const at::Tensor memory = aligned_bytes(bytes, device, /*is_zeroed=*/false);
  report(memory.data_ptr(), bytes);
  const auto release = [bytes, memory](void* owned) { report(owned, -bytes); };
  return at::from_blob(memory.data_ptr(), {bytes}, release, at::kByte);
}

// Returns the memory of a buffer, which lives as long as the result.
c10::DataPtr memory_in(const at::Tensor& buffer) {
  return {buffer.is_meta() ? nullptr : buffer.data_ptr(), new at::Tensor(buffer),
          [](void* owned) { delete static_cast<at::Tensor*>(owned); }, buffer.device()};
}

}  // namespace

at::Tensor bytes_of(const c10::Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  return at::empty({0}, at::device(storage.device()).dtype(at::kByte)).set_(storage, 0, {bytes});
}

// Finds the storages that only the given tensors refer to.
class OwnedStorages {
 public:
  // `may_leave`: the tensor's storage is wanted; else it only counts as one that refers to it.
  void add(const at::Tensor& tensor, bool may_leave) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (++handles_[impl] > 1) return;
    if (torch::autograd::impl::try_get_grad_accumulator(tensor)) ++handles_[impl];  // it refers to its leaf, and does not read it
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    tensors_[storage].push_back(impl);
    if (may_leave && std::ranges::count(wanted_, storage) == 0) wanted_.push_back(storage);
  }

  // Returns those of at least so many bytes, in the order in which they were added.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> all(int64_t least) const {
    std::vector<c10::intrusive_ptr<c10::StorageImpl>> found;
    for (c10::StorageImpl* storage : wanted_) {
      const auto& tensors = tensors_.at(storage);
      const bool is_large = static_cast<int64_t>(storage->nbytes()) >= std::max<int64_t>(least, 1);
      if (!is_large || c10::raw::intrusive_ptr::use_count(storage) != tensors.size()) continue;
      const auto is_ours = [&](c10::TensorImpl* tensor) {
        return c10::raw::intrusive_ptr::use_count(tensor) == handles_.at(tensor);
      };
      if (std::ranges::all_of(tensors, is_ours)) found.push_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage));
    }
    return found;
  }

 private:
  std::map<c10::TensorImpl*, size_t> handles_;
  std::map<c10::StorageImpl*, std::vector<c10::TensorImpl*>> tensors_;
  std::vector<c10::StorageImpl*> wanted_;
};

// The graph owns the tensors that it has saved, and nothing else refers to them.
void MovedValues::add_saved(int position, int micro_batch, bool may_leave, OwnedStorages& owned) const {
  const auto known = saved_.find({position, micro_batch});
  if (known == saved_.end()) return;
  for (const auto& saved : known->second) {
    if (auto impl = saved.lock()) owned.add(at::Tensor(std::move(impl)), may_leave);
  }
}

// Scripts refer to the tensors of their layers until these are collected.
void MovedValues::drop_garbage(const Action& action, const StepParts& parts) const {
  extras_of(parts.layers.layer(action.target)).drop_garbage();
  if (action.step_data() != StepData::value) return;
  for (const int reader : readers_[static_cast<size_t>(action.target)]) extras_of(parts.layers.layer(reader)).drop_garbage();
}

// Outputs of a position are also held by its graph, and by the inputs and the graphs of those that read them.
OwnedStorages MovedValues::held_by_step(const Action& action, StepParts& parts) const {
  OwnedStorages owned;
  const int position = action.target, micro_batch = action.micro_batch;
  if (action.step_data() == StepData::value) {
    for (int output = 0; output < static_cast<int>(parts.layers.info(position).outputs.size()); ++output)
      owned.add(parts.state.values.get({position, output}, micro_batch), true);
    for (const int reader : readers_[static_cast<size_t>(position)]) {
      for (const at::Tensor& input : parts.forwards.at(reader, micro_batch).inputs) owned.add(input, false);
      add_saved(reader, micro_batch, false, owned);
    }
  }
  add_saved(position, micro_batch, action.step_data() == StepData::graph, owned);
  return owned;
}

void MovedValues::give_back(const Record& record, const StepState& state) {
  if (state.elsewhere.homes) state.elsewhere.homes->give_back(record.tier, record.place, record.bytes);
}

void MovedValues::begin(const RankProgram& program, StepParts& parts) {
  moves_ = moves_values(program);
  for (int position = static_cast<int>(readers_.size()); moves_ && position < parts.layers.count(); ++position)
    readers_.push_back(readers_of(*parts.state.model, position));
  // Garbage of earlier steps is freed here, not within the step, whose memory is measured.
  for (int position = 0; moves_ && position < parts.layers.count(); ++position)
    extras_of(parts.layers.layer(position)).drop_garbage();
  saved_.clear();
  bytes_away_ = {};
  if (program.mode == Mode::train) most_away_ = {};
  for (const auto& [key, record] : away_) give_back(record, parts.state);
  away_.clear();
  buffers_.clear();
}

void MovedValues::discard(int micro_batch, const StepState& state) {
  std::erase_if(saved_, [&](const auto& entry) { return entry.first.second == micro_batch; });
  std::erase_if(away_, [&](const auto& entry) {
    const bool is_its = std::get<1>(entry.first) == micro_batch;
    if (is_its) {
      give_back(entry.second, state);
      bytes_away_.in(entry.second.tier) -= entry.second.bytes;
    }
    return is_its;
  });
}

Work MovedValues::evict(const Action& action, StepParts& parts) {
  const StepState& state = parts.state;
  if (state.failure) return {};
  Record record{.tier = parse_word<Tier>(action.attr("home"), "unknown home")};
  drop_garbage(action, parts);
  for (auto& storage : held_by_step(action, parts).all(action.number("least", 0))) {
    const auto bytes = static_cast<int64_t>(storage->nbytes());
    record.parts.push_back({std::move(storage), record.bytes, bytes});
    record.bytes += in_whole_pages(bytes);
  }
  if (record.parts.empty()) return {};
  at::Tensor& buffer = buffers_[action.number("slot", 0)];
  if (!buffer.defined() || buffer.numel() < record.bytes) {
    buffer.reset();
    buffer = make_buffer(record.bytes, record.parts.front().storage->device());
  }
  moved_ += record.bytes;
  Work work;
  if (state.elsewhere.homes) {
    const at::Tensor memory = buffer.narrow(0, 0, record.bytes);
    for (const Part& part : record.parts) memory.narrow(0, part.begin, part.bytes).copy_(bytes_of(c10::Storage(part.storage)));
    record.place = state.elsewhere.homes->take(record.tier, record.bytes);
    work = state.elsewhere.homes->write(record.tier, record.place, memory);
  }
  for (const Part& part : record.parts) {
    part.storage->set_data_ptr_noswap({nullptr, part.storage->device()});
    part.storage->set_nbytes(0);
  }
  bytes_away_.in(record.tier) += record.bytes;
  most_away_.rise_to(bytes_away_);
  away_[key_of(action)] = std::move(record);
  return work;
}

// After a failure nothing is read, but what takes part in the rest of the step has memory to work on.
Work MovedValues::fetch(const Action& action, const StepState& state) {
  auto found = away_.extract(key_of(action));
  if (found.empty()) return {};  // nothing of it was large enough to leave
  const Record record = std::move(found.mapped());
  bytes_away_.in(record.tier) -= record.bytes;
  buffers_.erase(action.number("slot", 0));  // what has left by this place has been written
  moved_ += record.bytes;
  Homes* homes = state.elsewhere.homes.get();
  std::vector<Work> works;
  for (const Part& part : record.parts) {
    const int64_t bytes = in_whole_pages(part.bytes);
    const at::Tensor buffer = make_buffer(bytes, part.storage->device());  // of its own: one may be needed longer than another
    if (homes && !state.failure) works.push_back(homes->read(record.tier, record.place + part.begin, buffer));
    part.storage->set_data_ptr_noswap(memory_in(buffer));
    part.storage->set_nbytes(static_cast<size_t>(part.bytes));
  }
  return then(all_of(std::move(works)),
              [&state, place = Record{record.tier, record.place, record.bytes}] { give_back(place, state); });
}

}  // namespace zt
