#include "whole_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "held_boxes.h"
#include "owned_data.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/base/tensor.h"
#include "zt/gemm/packed_stack.h"

namespace zt::whole_tensors {

namespace {

// Returns the indices along the split axes of the ranks that hold the tensor, ascending. Ranks hold the buffers of the layers
// that they run.
std::vector<int> holders_of(const Store& store, int tensor) {
  if (!store.is_buffer(tensor)) return store.unit_of(tensor).holders;
  const ModelInfo& model = *store.state().model;
  const std::vector<int> group = store.place().coord.shape.group(store.place().coord.rank, store.place().split_axes);
  std::vector<int> holders;
  for (size_t member = 0; member < group.size(); ++member) {
    const std::vector<bool> runs = positions_run(*store.plan().programs_of_ranks()[group[member]], model);
    for (size_t p = 0; p < runs.size(); ++p) {
      if (!runs[p] || model.positions[p].layer != model.buffers[store.buffer_index(tensor)].layer) continue;
      holders.push_back(static_cast<int>(member));
      break;
    }
  }
  return holders;
}

bool is_held(const Store& store, int tensor) {
  if (!store.is_buffer(tensor)) return store.unit_of(tensor).plan.held;
  return std::ranges::binary_search(holders_of(store, tensor), store.place().coord.index(store.place().split_axes));
}

// Returns whether ranks must communicate to read the tensor whole: on all ranks the same.
bool is_spread(const Store& store, int tensor, Of of) {
  const auto& split = store.place().split_axes;
  if (!split.empty() && static_cast<int>(holders_of(store, tensor).size()) != store.place().coord.size(split)) return true;
  if (store.is_buffer(tensor)) return false;
  const Unit& unit = store.unit_of(tensor);
  if (of == Of::states && store.place().coord.size(unit.owner_axes) > 1) return true;
  const bool is_sharded = of == Of::layers ? unit.owns_shard() : unit.layout.ranks > 1;
  return is_sharded || !store.info(tensor).cut_axes().empty();
}

// Returns, on all ranks, the tensor that `make` returns on the first rank that holds it. Only holders call `make`, and
// its result has `dtype` and `shape` on each of them.
at::Tensor from_holders(const Store& store, int tensor, at::ScalarType dtype, const std::vector<int64_t>& shape,
                        const std::function<at::Tensor()>& make) {
  const auto& split = store.place().split_axes;
  const std::vector<int> holders = holders_of(store, tensor);
  const auto options = at::TensorOptions(store.state().links->device()).dtype(dtype);
  const at::Tensor mine = is_held(store, tensor) ? make() : at::empty(shape, options);
  if (split.empty() || static_cast<int>(holders.size()) == store.place().coord.size(split)) return mine;
  store.state().links->comm(split).broadcast(mine, holders.front()).synchronize();
  return mine;
}

// Returns the index of the rank that updates the parameter as a whole, along Unit::owner_axes; -1 if none does.
int owner_of(const Store& store, int param) {
  const Unit& unit = store.unit_of(param);
  const std::vector<int>& params = store.state().model->units[unit.index].params;
  return unit.owners.empty() ? -1 : unit.owners[static_cast<size_t>(std::ranges::find(params, param) - params.begin())];
}

// Throws this rank's complaint, else the first one of another rank. Each value is a list, with the complaint at `place`.
void refuse_complaints(const std::vector<Value>& all, size_t place, const std::string& own) {
  if (!own.empty()) misuse("{}", own);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string& text = *(*all[rank].get_if<Value::List>())[place].get_if<std::string>();
    if (!text.empty()) misuse("rank {}: {}", rank, text);
  }
}

// The tensor that is to be set.
struct Wanted {
  int tensor;                  // an index of Store::tensors
  std::string what;            // "parameter 'head.weight'"
  std::vector<int64_t> shape;  // its own, or that of a state
};

// Returns what is wrong with the values that this rank gives; empty if nothing is.
std::string wrong_values(const Store& store, const Wanted& wanted, const Given& given) {
  const int ranks = store.plan().world_place().size;
  if (!given.complaint.empty()) return given.complaint;
  if (given.from && (*given.from < 0 || *given.from >= ranks))
    return fmt::format("there is no rank {} to take values from: the mesh has {}", *given.from, ranks);
  if (given.from && *given.from != store.plan().world_place().rank) return {};
  if (given.values.sizes() == at::IntArrayRef(wanted.shape)) {
    const bool is_packed = !store.is_buffer(wanted.tensor) && store.info(wanted.tensor).is_packed();
    if (!is_packed || at::isfinite(given.values).all().item<bool>()) return {};
    return fmt::format("{} is packed, and no packed format holds values that are not finite: some of these are not", wanted.what);
  }
  return fmt::format("{} is [{}], the values are {}", wanted.what, fmt::join(wanted.shape, ", "), describe(given.values));
}

// Returns the values that all ranks set: those of rank `from`, or what all ranks give alike. All ranks throw what is wrong with
// them. Collective.
at::Tensor agree(const Store& store, const Wanted& wanted, const Given& given) {
  const ModelTensor& tensor = store.tensors()[wanted.tensor];
  const auto& from = given.from;
  const std::string wrong = wrong_values(store, wanted, given);
  Communicator* control = control_of_all(store.plan().program());
  if (!control) {
    if (!wrong.empty()) misuse("{}", wrong);
    return given.values.detach();
  }
  const bool is_bytes = tensor.is_parameter && wanted.shape != tensor.shape && given.values.scalar_type() == at::kByte;
  const auto options = at::TensorOptions(store.state().links->device())
                           .dtype(is_bytes              ? at::kByte
                                  : tensor.is_parameter ? store.plan().main().precision.master()
                                                        : tensor.dtype);
  const bool is_given = wrong.empty() && (!from || *from == store.plan().world_place().rank);
  at::Tensor agreed = is_given ? given.values.detach().to(options).contiguous() : at::empty(wanted.shape, options);
  const at::Tensor host = is_given && !from ? agreed.cpu() : at::Tensor();
  const uint64_t hash = host.defined() ? stable_hash({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}) : 0;
  const std::string changed = fmt::format("{} of trainer {} of the mesh{}", wanted.what, store.state().links->trainer(),
                                          from ? fmt::format(", by the values of rank {}", *from) : "");
  const auto all = control->all_gather_values(Value::List{changed, wrong, fmt::format("{:016x}", hash)}, "sets a tensor");
  const auto word = [&](size_t rank, size_t index) { return *(*all[rank].get_if<Value::List>())[index].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (word(rank, 0) != word(0, 0))
      misuse("rank 0 sets {}, and rank {} {}, in the order in which trainers were made: all ranks set the same", word(0, 0), rank,
             word(rank, 0));
  }
  refuse_complaints(all, 1, wrong);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (word(rank, 2) != word(0, 2))
      misuse("the ranks 0 and {} give different values for {}: give equal values, or say by `rank` whose values all take", rank,
             wanted.what);
  }
  if (!from) return agreed;
  if (agreed.is_alias_of(given.values)) agreed = agreed.clone();
  store.plan().program().mesh()->world()->communicator->broadcast(agreed, *from).synchronize();
  return agreed;
}

// `tensor`: as for owned_data::write. `held`: the values of this rank's boxes of the parameter.
void set_owned(const Store& store, int param, const std::string& tensor, const at::Tensor& held) {
  const OwnedRun run = store.owned(param);
  owned_data::write(store.state(), store.unit_of(param), tensor, run.place, held.narrow(0, run.first, run.count));
}

}  // namespace

void require_alike(const Store& store, const char* what, int tensor, Of of, const std::string& complaint) {
  Communicator* control = control_of_all(store.plan().program());
  if (!control || !is_spread(store, tensor, of)) {
    if (!complaint.empty()) misuse("{}", complaint);
    return;
  }
  const std::string mine =
      fmt::format("the {} of '{}' of trainer {}", what, store.tensors()[tensor].name, store.state().links->trainer());
  const std::vector<Value> all = control->all_gather_values(Value::List{mine, complaint}, "reads a tensor");
  const auto read = [&](size_t rank) { return *(*all[rank].get_if<Value::List>())[0].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (read(rank) != read(0))
      misuse(
          "rank 0 reads {} of the mesh, and rank {} {}, in the order in which trainers were made: all ranks read a tensor that is "
          "spread over them, in one order",
          read(0), rank, read(rank));
  }
  refuse_complaints(all, 1, complaint);
}

at::Tensor parameter(const Store& store, int tensor) {
  return from_holders(store, tensor, store.tensors()[tensor].dtype, store.tensors()[tensor].shape, [&] {
    if (store.is_buffer(tensor)) return store.state().buffers[store.buffer_index(tensor)].clone();
    const Unit& unit = store.unit_of(tensor);
    if (unit.owns_shard()) return join(store, tensor, owned_data::all(store.state(), unit, "shard"));
    return join_boxes(store, tensor, unit.full);
  });
}

// A frozen unit has no master copy in the optimizer's precision: its parameters have the dtype in which layers see them.
at::Tensor master(const Store& store, int tensor) {
  if (store.is_buffer(tensor)) return parameter(store, tensor);
  const at::ScalarType exact = store.plan().main().precision.master();
  return from_holders(store, tensor, exact, store.tensors()[tensor].shape, [&] {
    return join(store, tensor, owned_data::all(store.state(), store.unit_of(tensor), "master")).to(exact);
  });
}

at::Tensor gradient_shards(const Store& store, int param) {
  return from_holders(store, param, store.plan().main().precision.grads, store.tensors()[param].shape,
                      [&] { return join(store, param, owned_data::all(store.state(), store.unit_of(param), "grad_shard")); });
}

// Returns whether the optimizer keeps state for the tensor. Ranks that do not hold it agree.
static bool has_state(const Store& store, int tensor) {
  if (store.is_buffer(tensor)) return false;
  const ParamInfo& param = store.info(tensor);
  return store.plan().owns_tensors() ? param.trainable : store.state().model->units[param.unit].trainable;
}

// Returns one state from where the ranks of the unit hold it: in their shards, in runs of the parameter's elements, or on the
// rank that owns the tensor.
static at::Tensor joined_state(const Store& store, int param, const StateInfo& info) {
  const Unit& unit = store.unit_of(param);
  if (unit.owners.empty()) return join(store, param, owned_data::all(store.state(), unit, "state." + info.name));
  const UpdatedPart* part = store.updated_part(param);
  if (const int owner = owner_of(store, param); owner >= 0) {
    const at::Tensor all = part ? part->state.at(info.name).clone()
                                : at::empty(info.shape, unit.master.options().dtype(info.dtype_with(unit.master.scalar_type())));
    if (store.place().coord.size(unit.owner_axes) > 1)
      store.state().links->comm(unit.owner_axes).broadcast(all, owner).synchronize();
    return all;
  }
  const at::Tensor chunk = at::zeros_like(unit.master);
  const OwnedRun owned = store.owned(param);
  if (part) chunk.narrow(0, owned.place, owned.count).copy_(part->state.at(info.name));
  return join(store, param, chunk);
}

std::map<std::string, at::Tensor> optimizer_state(const Store& store, int param) {
  std::map<std::string, at::Tensor> state;
  if (!has_state(store, param)) return state;
  const at::ScalarType exact = store.plan().main().precision.master();
  for (const StateInfo& info : store.plan().states_of(store.info(param)))
    state[info.name] =
        from_holders(store, param, info.dtype_with(exact), info.shape, [&] { return joined_state(store, param, info); });
  return state;
}

at::Tensor pass_buffer(const Store& store, const std::string& buffer, int param) {
  const ResourceId type = resource_id(buffer);
  const PassBuffer* declared = nullptr;
  for (const auto& program : store.plan().programs_of_ranks()) {
    if (!declared) declared = program->find_buffer(type, store.info(param).unit);
  }
  if (!declared || declared->residence != BufferResidence::sharded)
    misuse("no pass has a sharded buffer '{}' for the parameter '{}'", buffer, store.info(param).name);
  return from_holders(store, param, declared->dtype, store.tensors()[param].shape,
                      [&] { return join(store, param, store.state().pass_buffer(type, store.info(param).unit)); });
}

namespace {

// Returns the shape of the values that are given for a parameter: its own, or that of the bytes of the packed matrix.
std::vector<int64_t> shape_given(const Store& store, int param, const Given& given) {
  const bool is_packed = !store.is_buffer(param) && store.info(param).is_packed();
  if (!is_packed || given.from || given.values.scalar_type() != at::kByte) return store.tensors()[param].shape;
  return {packed_bytes(store.info(param).pack, store.info(param).shape)};
}

}  // namespace

void set_parameter(Store& store, int param, const Given& given) {
  const at::Tensor values =
      agree(store, {param, fmt::format("parameter '{}'", store.tensors()[param].name), shape_given(store, param, given)}, given);
  ++store.state().replacements;
  if (store.is_buffer(param)) {
    if (const at::Tensor& buffer = store.state().buffers[store.buffer_index(param)]; buffer.defined()) buffer.copy_(values);
    return;
  }
  const bool is_shared = store.unit_of(param).plan.held && store.unit_of(param).is_node_shared();
  if (is_shared) store.shard_axes_of(store.unit_of(param)).barrier();  // other ranks may still read them
  write_held(store, param, values);
  if (is_shared) store.shard_axes_of(store.unit_of(param)).barrier();
}

void write_held(const Store& store, int param, const at::Tensor& values) {
  const Unit& unit = store.unit_of(param);
  if (!unit.plan.held) return;
  const at::Tensor held = held_in_format(store, param, values);
  set_owned(store, param, "master", held);
  if (unit.has_own_master) set_owned(store, param, "shard", held);
  if (!unit.owns_shard() && !unit.is_node_shared()) unit.full.narrow(0, store.info(param).offset, held.numel()).copy_(held);
}

void set_optimizer_state(Store& store, int param, const std::string& state, const Given& given) {
  const auto states = has_state(store, param) ? store.plan().states_of(store.info(param)) : std::vector<StateInfo>();
  const auto found = std::ranges::find(states, state, &StateInfo::name);
  if (found == states.end()) {
    std::vector<std::string> names;
    for (const StateInfo& each : states) names.push_back(each.name);
    misuse("the optimizer keeps no '{}' for parameter '{}'{}", state, store.info(param).name, suggest(state, names));
  }
  const std::string what = fmt::format("state '{}' of parameter '{}'", state, store.info(param).name);
  const at::Tensor agreed = agree(store, {param, what, found->shape}, given);
  const Unit& unit = store.unit_of(param);
  if (!unit.plan.held) return;
  const UpdatedPart* part = store.updated_part(param);
  if (unit.owners.empty()) set_owned(store, param, "state." + state, held_values(store, param, agreed));
  else if (part && part->is_whole) at::Tensor(part->state.at(state)).copy_(agreed);
  else if (part) {
    const OwnedRun run = store.owned(param);
    at::Tensor(part->state.at(state)).copy_(held_values(store, param, agreed).narrow(0, run.first, run.count));
  }
}

}  // namespace zt::whole_tensors
