#include "whole_tensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "plan/plan.h"
#include "zt/base/error.h"

namespace zt {

at::Tensor part_of(at::Tensor logical, const Box& box) {
  for (size_t dim = 0; dim < box.begin.size(); ++dim)
    logical = logical.narrow(static_cast<int64_t>(dim), box.begin[dim], box.end[dim] - box.begin[dim]);
  return logical;
}

// Returns the indices along the split axes of the ranks that hold the tensor, ascending. Ranks hold the buffers of the layers
// that they run.
std::vector<int> WholeTensors::holders_of(int tensor) const {
  if (!store_.tensors().is_buffer(tensor)) return store_.unit_of(tensor).holders;
  const ModelInfo& model = *store_.state().model;
  const std::vector<int> group = store_.place().coord.shape.group(store_.place().coord.rank, store_.place().split_axes);
  std::vector<int> holders;
  for (size_t member = 0; member < group.size(); ++member) {
    const std::vector<bool> runs = positions_run(*store_.plan().programs_of_ranks()[group[member]], model);
    for (size_t p = 0; p < runs.size(); ++p) {
      if (!runs[p] || model.positions[p].layer != model.buffers[store_.tensors().buffer_index(tensor)].layer) continue;
      holders.push_back(static_cast<int>(member));
      break;
    }
  }
  return holders;
}

bool WholeTensors::is_held(int tensor) const {
  if (!store_.tensors().is_buffer(tensor)) return store_.unit_of(tensor).plan.held;
  return std::ranges::binary_search(holders_of(tensor), store_.place().coord.index(store_.place().split_axes));
}

// Returns whether ranks must communicate to read the tensor whole: on all ranks the same.
bool WholeTensors::is_spread(int tensor, Of of) const {
  const auto& split = store_.place().split_axes;
  if (!split.empty() && static_cast<int>(holders_of(tensor).size()) != store_.place().coord.size(split)) return true;
  if (store_.tensors().is_buffer(tensor)) return false;
  const Unit& unit = store_.unit_of(tensor);
  const bool is_sharded = of == Of::shards ? unit.layout.ranks > 1 : unit.owns_shard();
  return is_sharded || !store_.info(tensor).cut_axes().empty();
}

void WholeTensors::require_alike(const char* what, int tensor, Of of) const {
  Communicator* control = control_of_all(store_.plan().program());
  if (!control || !is_spread(tensor, of)) return;
  const std::string mine =
      fmt::format("the {} of '{}' of trainer {}", what, store_.tensors()[tensor].name, store_.state().links->trainer());
  const std::vector<Value> all = control->all_gather_values(mine);
  const auto word = [&](size_t rank) { return *all[rank].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (word(rank) != word(0))
      misuse(
          "rank 0 reads {} of the mesh, and rank {} {}, in the order in which trainers were made: all ranks read a tensor that is "
          "spread over them, in one order",
          word(0), rank, word(rank));
  }
}

// Returns the logical tensor from the boxes that the ranks hold.
at::Tensor WholeTensors::join_boxes(int param, const at::Tensor& box) const {
  const ParamInfo& held = store_.info(param);
  const auto axes = held.cut_axes();
  if (axes.empty()) return box;
  Communicator& comm = store_.state().links->comm(axes);
  const at::Tensor boxes = at::empty({comm.size() * held.numel}, box.options());
  comm.all_gather(boxes, box.contiguous().view({-1})).synchronize();
  const auto ranks = store_.place().coord.shape.group(store_.place().coord.rank, axes);
  at::Tensor all = at::empty(held.logical_shape(), box.options());
  for (size_t i = 0; i < ranks.size(); ++i)
    part_of(all, held.box({store_.place().coord.shape, ranks[i]}))
        .copy_(boxes.narrow(0, static_cast<int64_t>(i) * held.numel, held.numel).view(held.shape));
  return all;
}

// Returns the logical tensor from the parts that the ranks hold in `chunk`.
at::Tensor WholeTensors::whole(int param, const at::Tensor& chunk) const {
  const Unit& unit = store_.unit_of(param);
  at::Tensor all = chunk;
  if (unit.layout.ranks > 1) {
    all = at::empty({unit.layout.padded()}, chunk.options());
    store_.shard_axes_of(unit).all_gather(all, chunk).synchronize();
  }
  return join_boxes(param,
                    all.narrow(0, store_.info(param).offset, store_.info(param).numel).view(store_.info(param).shape).clone());
}

// Returns, on all ranks, the logical tensor that `make` returns on the first rank that holds it. Only holders call `make`, and
// its result has `dtype` on each of them.
at::Tensor WholeTensors::from_holders(int tensor, at::ScalarType dtype, const std::function<at::Tensor()>& make) const {
  const auto& split = store_.place().split_axes;
  const std::vector<int> holders = holders_of(tensor);
  const at::Tensor mine = is_held(tensor) ? make() : at::empty(store_.tensors()[tensor].shape, at::TensorOptions().dtype(dtype));
  if (split.empty() || static_cast<int>(holders.size()) == store_.place().coord.size(split)) return mine;
  store_.state().links->comm(split).broadcast(mine, holders.front()).synchronize();
  return mine;
}

at::Tensor WholeTensors::parameter(int tensor) const {
  return from_holders(tensor, store_.tensors()[tensor].dtype, [&] {
    if (store_.tensors().is_buffer(tensor)) return store_.state().buffers[store_.tensors().buffer_index(tensor)].clone();
    const Unit& unit = store_.unit_of(tensor);
    if (unit.owns_shard()) return whole(tensor, unit.shard);
    return join_boxes(tensor, store_.state().parameters[tensor].detach().clone());
  });
}

// A frozen unit has no master copy in the optimizer's precision: its parameters have the dtype in which layers see them.
at::Tensor WholeTensors::master(int tensor) const {
  if (store_.tensors().is_buffer(tensor)) return parameter(tensor);
  const at::ScalarType exact = store_.plan().main().precision.master();
  return from_holders(tensor, exact, [&] { return whole(tensor, store_.unit_of(tensor).master).to(exact); });
}

at::Tensor WholeTensors::gradient_shards(int param) const {
  return from_holders(param, store_.plan().main().precision.grads,
                      [&] { return whole(param, store_.unit_of(param).grad_shard); });
}

std::map<std::string, at::Tensor> WholeTensors::optimizer_state(int param) const {
  std::map<std::string, at::Tensor> state;
  if (store_.tensors().is_buffer(param) || !store_.state().model->units[store_.info(param).unit].trainable) return state;
  const at::ScalarType exact = store_.plan().main().precision.master();
  for (const std::string& key : store_.plan().state_names())
    state[key] = from_holders(param, exact, [&] { return whole(param, store_.unit_of(param).state.at(key)); });
  return state;
}

}  // namespace zt
