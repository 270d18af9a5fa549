#include "tensor_changes.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "whole_tensors.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/base/tensor.h"

namespace zt {

// Returns the values that all ranks set: those of rank `from`, or what all ranks give alike. All ranks throw what is wrong with
// them. Collective.
at::Tensor TensorChanges::agree(int tensor, const at::Tensor& values, std::optional<int> from) const {
  const auto& [name, shape, dtype, is_parameter] = store_.tensors()[tensor];
  std::string complaint;
  if (values.sizes() != at::IntArrayRef(shape))
    complaint = fmt::format("parameter '{}' is [{}], the values are {}", name, fmt::join(shape, ", "), describe(values));
  const World place = store_.plan().world_place();
  if (from && (*from < 0 || *from >= place.size))
    misuse("there is no rank {} to take values from: the mesh has {}", *from, place.size);
  Communicator* control = control_of_all(store_.plan().program());
  if (!control) {
    if (!complaint.empty()) misuse("{}", complaint);
    return values.detach();
  }
  const at::ScalarType exact = is_parameter ? store_.plan().main().precision.master() : dtype;
  at::Tensor agreed = complaint.empty() ? values.detach().to(exact).contiguous() : values;
  const bool is_compared = !from && complaint.empty();
  const at::Tensor host = is_compared ? agreed.cpu() : at::Tensor();
  const uint64_t hash = is_compared ? stable_hash({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}) : 0;
  const std::string changed = fmt::format("'{}' of trainer {}", name, store_.state().links->trainer());
  const auto all = control->all_gather_values(Value::List{complaint, fmt::format("{:016x}", hash), changed});
  const auto word = [&](size_t rank, size_t index) { return *(*all[rank].get_if<Value::List>())[index].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (word(rank, 2) != word(0, 2))
      misuse("rank 0 sets {} of the mesh, and rank {} {}, in the order in which trainers were made: all ranks set the same",
             word(0, 2), rank, word(rank, 2));
    if (from && rank != static_cast<size_t>(*from)) continue;
    if (!word(rank, 0).empty()) misuse("{}", word(rank, 0));
    if (!from && word(rank, 1) != word(0, 1))
      misuse("the ranks 0 and {} give different values for '{}': give equal values, or say by `rank` whose values all take", rank,
             name);
  }
  if (!from) return agreed;
  if (place.rank != *from) agreed = at::empty(shape, at::TensorOptions().dtype(exact));
  else if (agreed.is_same(values)) agreed = agreed.clone();
  store_.plan().program().mesh()->world()->communicator->broadcast(agreed, *from).synchronize();
  return agreed;
}

void TensorChanges::set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const {
  const Piece owned = store_.piece_of(param, chunk);
  const at::Tensor box = part_of(values, owned.boxes[0]);
  at::Tensor(owned.data).copy_(box.reshape({store_.info(param).numel}).narrow(0, owned.first, owned.count));
}

void TensorChanges::set_parameter(int param, const at::Tensor& given, std::optional<int> from) const {
  const at::Tensor values = agree(param, given, from);
  if (store_.tensors().is_buffer(param)) {
    if (const at::Tensor& buffer = store_.state().buffers[store_.tensors().buffer_index(param)]; buffer.defined())
      buffer.copy_(values);
    return;
  }
  const Unit& unit = store_.unit_of(param);
  if (!unit.plan.held) return;
  if (unit.is_node_shared()) store_.shard_axes_of(unit).barrier();  // other ranks may still read them
  set_owned(param, unit.master, values);
  set_owned(param, unit.shard, values);
  if (unit.is_node_shared()) store_.shard_axes_of(unit).barrier();
  else if (!unit.owns_shard())
    store_.state().parameters[param].detach().copy_(part_of(values, store_.info(param).box(store_.place().coord)));
}

void TensorChanges::set_optimizer_state(int param, const std::string& state, const at::Tensor& values,
                                        std::optional<int> from) const {
  const std::vector<std::string> state_names = store_.plan().state_names();
  const bool has_state = store_.state().model->units[store_.info(param).unit].trainable;
  if (!has_state || std::ranges::find(state_names, state) == state_names.end()) {
    misuse("the optimizer keeps no '{}' for parameter '{}'{}", state, store_.info(param).name,
           suggest(state, has_state ? state_names : std::vector<std::string>{}));
  }
  const at::Tensor agreed = agree(param, values, from);
  if (store_.unit_of(param).plan.held) set_owned(param, store_.unit_of(param).state.at(state), agreed);
}

}  // namespace zt
