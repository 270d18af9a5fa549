#include "move_values.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>

#include "execute/step/step_parts.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

int64_t in_whole_pages(int64_t bytes) {
  return (bytes + kHomeAlign - 1) / kHomeAlign * kHomeAlign;
}

// Returns the first `bytes` bytes of a buffer from an address that is a multiple of kHomeAlign.
at::Tensor aligned(const at::Tensor& buffer, int64_t bytes) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer.data_ptr()));
  return buffer.narrow(0, in_whole_pages(address) - address, bytes);
}

// Returns memory within a buffer, which lives as long as the result.
c10::DataPtr memory_in(const at::Tensor& buffer, void* memory) {
  return {memory, new at::Tensor(buffer), [](void* owned) { delete static_cast<at::Tensor*>(owned); }, buffer.device()};
}

}  // namespace

// Finds the storages that only the given tensors refer to.
class OwnedStorages {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (++handles_[impl] > 1) return;
    if (torch::autograd::impl::try_get_grad_accumulator(tensor)) ++handles_[impl];  // it refers to its leaf, and does not read it
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    std::vector<c10::TensorImpl*>& tensors = tensors_[storage];
    if (tensors.empty()) order_.push_back(storage);
    tensors.push_back(impl);
  }

  // Returns those of at least so many bytes, in the order in which they were added.
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> all(int64_t least) const {
    std::vector<c10::intrusive_ptr<c10::StorageImpl>> found;
    for (c10::StorageImpl* storage : order_) {
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
  std::vector<c10::StorageImpl*> order_;
};

// The graph owns the tensors that it has saved, and nothing else refers to them.
void MovedValues::add_saved(int position, int micro_batch, OwnedStorages& owned) const {
  const auto known = saved_.find({position, micro_batch});
  if (known == saved_.end()) return;
  for (const auto& saved : known->second) {
    if (auto impl = saved.lock()) owned.add(at::Tensor(std::move(impl)));
  }
}

// Outputs of a position are also held by its graph, and by the inputs and the graphs of those that read them.
OwnedStorages MovedValues::held_by_step(const Action& action, StepParts& parts) const {
  OwnedStorages owned;
  const int position = action.target, micro_batch = action.micro_batch;
  if (action.step_data() == StepData::value) {
    for (int output = 0; output < static_cast<int>(parts.layers.info(position).outputs.size()); ++output)
      owned.add(parts.state.values.get({position, output}, micro_batch));
    for (int reader = 0; reader < parts.layers.count(); ++reader) {
      if (std::ranges::count(parts.layers.info(reader).inputs, position, &Edge::position) == 0) continue;
      for (const at::Tensor& input : parts.forwards.at(reader, micro_batch).inputs) owned.add(input);
      add_saved(reader, micro_batch, owned);
    }
  }
  add_saved(position, micro_batch, owned);
  return owned;
}

void MovedValues::give_back(const Record& record, const StepState& state) {
  if (state.elsewhere.homes) state.elsewhere.homes->give_back(record.tier, record.place, record.bytes);
}

void MovedValues::begin(const RankProgram& program, const StepState& state) {
  moves_ = std::ranges::count(program.actions, Kinds::get().evict_value, &Action::kind) > 0;
  saved_.clear();
  for (const auto& [key, record] : away_) give_back(record, state);
  away_.clear();
  buffers_.clear();
}

void MovedValues::discard(int micro_batch, const StepState& state) {
  std::erase_if(saved_, [&](const auto& entry) { return entry.first.second == micro_batch; });
  std::erase_if(away_, [&](const auto& entry) {
    const bool is_its = std::get<1>(entry.first) == micro_batch;
    if (is_its) give_back(entry.second, state);
    return is_its;
  });
}

// Takes the buffer of the action's slot, or a new one where it is too small.
at::Tensor MovedValues::take_buffer(const Action& action, int64_t bytes, at::Device device) {
  at::Tensor buffer = std::exchange(buffers_[action.number("slot", 0)], at::Tensor());
  if (!buffer.defined() || buffer.numel() < bytes + kHomeAlign) {
    buffer.reset();
    buffer = at::empty({bytes + kHomeAlign}, at::device(device).dtype(at::kByte));
  }
  return buffer;
}

Work MovedValues::evict(const Action& action, StepParts& parts) {
  const StepState& state = parts.state;
  if (state.failure) return {};
  Record record{.tier = parse_word<Tier>(action.attr("home"), "unknown home")};
  for (auto& storage : held_by_step(action, parts).all(action.number("least", 0))) {
    const auto bytes = static_cast<int64_t>(storage->nbytes());
    record.parts.push_back({std::move(storage), record.bytes, bytes});
    record.bytes += in_whole_pages(bytes);
  }
  if (record.parts.empty()) return {};
  const at::Tensor buffer = take_buffer(action, record.bytes, record.parts.front().storage->device());
  moved_ += record.bytes;
  Work work;
  if (state.elsewhere.homes) {
    const at::Tensor memory = aligned(buffer, record.bytes);
    auto* to = static_cast<std::byte*>(memory.data_ptr());
    for (const Part& part : record.parts) std::memcpy(to + part.begin, part.storage->data(), static_cast<size_t>(part.bytes));
    record.place = state.elsewhere.homes->take(record.tier, record.bytes);
    work = state.elsewhere.homes->write(record.tier, record.place, memory);
  }
  for (const Part& part : record.parts) {
    part.storage->set_data_ptr_noswap({nullptr, part.storage->device()});
    part.storage->set_nbytes(0);
  }
  buffers_[action.number("slot", 0)] = buffer;
  away_[key_of(action)] = std::move(record);
  return work;
}

// After a failure nothing is read, but what takes part in the rest of the step has memory to work on.
Work MovedValues::fetch(const Action& action, const StepState& state) {
  auto found = away_.extract(key_of(action));
  if (found.empty()) return {};  // nothing of it was large enough to leave
  const Record record = std::move(found.mapped());
  const at::Tensor buffer = take_buffer(action, record.bytes, record.parts.front().storage->device());
  moved_ += record.bytes;
  Homes* homes = state.elsewhere.homes.get();
  const at::Tensor memory = homes ? aligned(buffer, record.bytes) : buffer;
  const Work work = homes && !state.failure ? homes->read(record.tier, record.place, memory) : Work();
  for (const Part& part : record.parts) {
    auto* begin = homes ? static_cast<std::byte*>(memory.data_ptr()) + part.begin : nullptr;
    part.storage->set_data_ptr_noswap(memory_in(buffer, begin));
    part.storage->set_nbytes(static_cast<size_t>(part.bytes));
  }
  return then(work, [&state, place = Record{record.tier, record.place, record.bytes}] { give_back(place, state); });
}

}  // namespace zt
