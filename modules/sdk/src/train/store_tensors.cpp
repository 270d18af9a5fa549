// The store's tensors by name: for scripts, and for checkpoints.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "model/unit_build.h"
#include "store.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/program/resource.h"

namespace zt {

namespace {

// The meaning of the dims, whether the parameter is trained, and for tied weights the layers that share it.
Value::Table attributes_of(const ParamInfo& param, const ModelInfo& model) {
  Value::Table attributes{{"trainable", param.trainable}};
  if (!param.dims.empty()) attributes["dims"] = Value::List(param.dims.begin(), param.dims.end());
  if (param.positions.size() > 1) {
    Value::List layers;
    for (const int position : param.positions) layers.emplace_back(model.positions[position].name);
    attributes["tied"] = std::move(layers);
  }
  return attributes;
}

// Returns the view of the box's elements.
at::Tensor part_of(at::Tensor logical, const Box& box) {
  for (size_t dim = 0; dim < box.begin.size(); ++dim)
    logical = logical.narrow(static_cast<int64_t>(dim), box.begin[dim], box.end[dim] - box.begin[dim]);
  return logical;
}

}  // namespace

void Store::list_tensors() {
  const ModelInfo& model = *state_.model;
  const at::ScalarType computed = plan_->main().precision.params;
  for (const ParamInfo& param : model.params) tensors_.push_back({param.name, param.logical_shape(), computed, true});
  for (const BufferInfo& buffer : model.buffers)
    tensors_.push_back({buffer.name, buffer.initial.sizes().vec(), buffer.initial.scalar_type(), false});
}

int Store::find(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].name == name) return static_cast<int>(i);
    names.push_back(tensors_[i].name);
  }
  const std::string found = nearest(name, names);
  misuse("the model has no parameter '{}'{}", name,
         found.empty() ? std::string(": print(model) lists them") : fmt::format(": did you mean '{}'?", found));
}

int Store::find_parameter(const std::string& name, const char* what) const {
  const int found = find(name);
  if (is_buffer(found)) misuse("'{}' is a tensor that its layer changes itself, no parameter: it has no {}", name, what);
  return found;
}

// Returns the indices along the split axes of the ranks that hold the tensor, ascending. Ranks hold the buffers of the layers
// that they run.
std::vector<int> Store::holders_of(int tensor) const {
  if (!is_buffer(tensor)) return unit_of(tensor).holders;
  const ModelInfo& model = *state_.model;
  const std::vector<int> group = state_.coord.shape.group(state_.coord.rank, state_.split_axes);
  std::vector<int> holders;
  for (size_t member = 0; member < group.size(); ++member) {
    const std::vector<bool> runs = positions_run(*plan_->programs_of_ranks()[group[member]], model);
    for (size_t p = 0; p < runs.size(); ++p) {
      if (!runs[p] || model.positions[p].layer != model.buffers[buffer_index(tensor)].layer) continue;
      holders.push_back(static_cast<int>(member));
      break;
    }
  }
  return holders;
}

bool Store::is_held(int tensor) const {
  if (!is_buffer(tensor)) return unit_of(tensor).plan.held;
  return std::ranges::binary_search(holders_of(tensor), state_.coord.index(state_.split_axes));
}

// Returns the logical tensor from the boxes that the ranks hold.
at::Tensor Store::join_boxes(int param, const at::Tensor& box) const {
  const ParamInfo& held = info(param);
  const auto axes = held.cut_axes();
  if (axes.empty()) return box;
  Communicator& comm = state_.links->comm(axes);
  const at::Tensor boxes = at::empty({comm.size() * held.numel}, box.options());
  comm.all_gather(boxes, box.contiguous().view({-1})).synchronize();
  const auto ranks = state_.coord.shape.group(state_.coord.rank, axes);
  at::Tensor all = at::empty(held.logical_shape(), box.options());
  for (size_t i = 0; i < ranks.size(); ++i)
    part_of(all, held.box({state_.coord.shape, ranks[i]}))
        .copy_(boxes.narrow(0, static_cast<int64_t>(i) * held.numel, held.numel).view(held.shape));
  return all;
}

// Returns the logical tensor from the parts that the ranks hold in `chunk`.
at::Tensor Store::whole(int param, const at::Tensor& chunk) const {
  const Unit& unit = unit_of(param);
  at::Tensor all = chunk;
  if (unit.layout.ranks > 1) {
    all = at::empty({unit.layout.padded()}, chunk.options());
    axis_of(unit).all_gather(all, chunk).synchronize();
  }
  return join_boxes(param, all.narrow(0, info(param).offset, info(param).numel).view(info(param).shape).clone());
}

// Returns, on all ranks, the logical tensor that `make` returns on the first rank that holds it. Only holders call `make`, and
// its result has `dtype` on each of them.
at::Tensor Store::from_holders(int tensor, at::ScalarType dtype, const std::function<at::Tensor()>& make) const {
  const auto& split = state_.split_axes;
  const std::vector<int> holders = holders_of(tensor);
  const at::Tensor mine = is_held(tensor) ? make() : at::empty(tensors_[tensor].shape, at::TensorOptions().dtype(dtype));
  if (split.empty() || static_cast<int>(holders.size()) == state_.coord.size(split)) return mine;
  state_.links->comm(split).broadcast(mine, holders.front()).synchronize();
  return mine;
}

at::Tensor Store::parameter(int tensor) const {
  return from_holders(tensor, tensors_[tensor].dtype, [&] {
    if (is_buffer(tensor)) return state_.buffers[buffer_index(tensor)].clone();
    const Unit& unit = unit_of(tensor);
    if (unit.owns_shard()) return whole(tensor, unit.shard);
    return join_boxes(tensor, state_.parameters[tensor].detach().clone());
  });
}

// A frozen unit has no master copy in the optimizer's precision: its parameters have the dtype in which layers see them.
at::Tensor Store::master(int tensor) const {
  if (is_buffer(tensor)) return parameter(tensor);
  const at::ScalarType exact = plan_->main().precision.master();
  return from_holders(tensor, exact, [&] { return whole(tensor, unit_of(tensor).master).to(exact); });
}

at::Tensor Store::gradient_shards(int param) const {
  return from_holders(param, plan_->main().precision.grads, [&] { return whole(param, unit_of(param).grad_shard); });
}

std::map<std::string, at::Tensor> Store::optimizer_state(int param) const {
  std::map<std::string, at::Tensor> state;
  if (is_buffer(param) || !state_.model->units[info(param).unit].trainable) return state;
  const at::ScalarType exact = plan_->main().precision.master();
  for (const std::string& key : state_names_)
    state[key] = from_holders(param, exact, [&] { return whole(param, unit_of(param).state.at(key)); });
  return state;
}

// Ranks that share parameters may still read them before they are written from outside. Collective.
void Store::await_readers() const {
  for (const Unit& unit : state_.units) {
    if (unit.plan.held && unit.is_node_shared()) return axis_of(unit).barrier();
  }
}

// Returns the values that all ranks set: those of rank `from`, or what all ranks give alike. All ranks throw what is wrong with
// them. Collective.
at::Tensor Store::agree(int tensor, const at::Tensor& values, std::optional<int> from) const {
  const auto& [name, shape, dtype, is_parameter] = tensors_[tensor];
  std::string complaint;
  if (values.sizes() != at::IntArrayRef(shape))
    complaint = fmt::format("parameter '{}' is [{}], the values are {}", name, fmt::join(shape, ", "), describe(values));
  const World place = plan_->place();
  if (from && (*from < 0 || *from >= place.size))
    misuse("there is no rank {} to take values from: the mesh has {}", *from, place.size);
  Communicator* control = control_of_all(plan_->spec());
  if (!control) {
    if (!complaint.empty()) misuse("{}", complaint);
    return values.detach();
  }
  const at::ScalarType exact = is_parameter ? plan_->main().precision.master() : dtype;
  at::Tensor agreed = complaint.empty() ? values.detach().to(exact).contiguous() : values;
  const bool is_compared = !from && complaint.empty();
  const at::Tensor host = is_compared ? agreed.cpu() : at::Tensor();
  const uint64_t hash = is_compared ? stable_hash({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}) : 0;
  const auto all = control->all_gather_values(Value::List{complaint, fmt::format("{:016x}", hash)});
  const auto word = [&](size_t rank, size_t index) { return *(*all[rank].get_if<Value::List>())[index].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (from && rank != static_cast<size_t>(*from)) continue;
    if (!word(rank, 0).empty()) misuse("{}", word(rank, 0));
    if (!from && word(rank, 1) != word(0, 1))
      misuse("the ranks 0 and {} give different values for '{}': give equal values, or say by `rank` whose values all take", rank,
             name);
  }
  if (!from) return agreed;
  if (place.rank != *from) agreed = at::empty(shape, at::TensorOptions().dtype(exact));
  else if (agreed.is_same(values)) agreed = agreed.clone();
  plan_->spec().mesh()->world()->communicator->broadcast(agreed, *from).synchronize();
  return agreed;
}

// Returns the part of the parameter that lies in this rank's shard, as a piece of the logical tensor. `chunk`: the shard's
// buffer.
Piece Store::piece_of(int param, const at::Tensor& chunk) const {
  const OwnedRun owned = owned_run(info(param), unit_of(param));
  return {{info(param).box(state_.coord)}, owned.first, owned.count, chunk.narrow(0, owned.place, owned.count)};
}

void Store::set_owned(int param, const at::Tensor& chunk, const at::Tensor& values) const {
  const Piece owned = piece_of(param, chunk);
  const at::Tensor box = part_of(values, owned.boxes[0]);
  at::Tensor(owned.data).copy_(box.reshape({info(param).numel}).narrow(0, owned.first, owned.count));
}

void Store::set_parameter(int param, const at::Tensor& given, std::optional<int> from) const {
  const at::Tensor values = agree(param, given, from);
  if (is_buffer(param)) {
    if (const at::Tensor& buffer = state_.buffers[buffer_index(param)]; buffer.defined()) buffer.copy_(values);
    return;
  }
  const Unit& unit = unit_of(param);
  if (!unit.plan.held) return;
  if (unit.is_node_shared()) axis_of(unit).barrier();  // other ranks may still read them
  set_owned(param, unit.master, values);
  set_owned(param, unit.shard, values);
  if (unit.is_node_shared()) axis_of(unit).barrier();
  else if (!unit.owns_shard()) state_.parameters[param].detach().copy_(part_of(values, info(param).box(state_.coord)));
}

void Store::set_optimizer_state(int param, const std::string& state, const at::Tensor& values, std::optional<int> from) const {
  const bool has_state = state_.model->units[info(param).unit].trainable;
  if (!has_state || std::ranges::find(state_names_, state) == state_names_.end()) {
    misuse("the optimizer keeps no '{}' for parameter '{}'{}", state, info(param).name,
           suggest(state, has_state ? state_names_ : std::vector<std::string>{}));
  }
  const at::Tensor agreed = agree(param, values, from);
  if (unit_of(param).plan.held) set_owned(param, unit_of(param).state.at(state), agreed);
}

// Gives the owned part of each parameter in the tensors of the saved types of units, under the names "model/NAME" for `master`
// and "optimizer/exp_avg/NAME" for `state.exp_avg`.
void Store::visit_units(Visitor& visitor) const {
  for (int param = 0; param < static_cast<int>(state_.model->params.size()); ++param) {
    const Unit& unit = unit_of(param);
    if (!unit.plan.held) continue;
    for (const ResourceId id : resource_ids()) {
      const ResourceType& type = type_of(id);
      if (type.saved_as.empty() || type.index != Index::unit) continue;
      for (const NamedTensor& named : (*tensors_of(id))({.type = id, .index = unit.index}, state_)) {
        const size_t dot = named.name.find('.');
        const std::string part = dot == std::string::npos ? "" : named.name.substr(dot + 1) + "/";
        visitor.tensor(type.saved_as + "/" + part + info(param).name, info(param).logical_shape(), piece_of(param, named.tensor));
        if (id == resource::master) visitor.attributes(attributes_of(info(param), *state_.model));
      }
    }
  }
}

// Gives the tensors of the saved types of layers, which are equal on all ranks that run the layer.
void Store::visit_layers(Visitor& visitor) const {
  std::set<int> visited;
  for (const PositionInfo& position : state_.model->positions) {
    if (!visited.insert(position.layer).second) continue;
    for (const ResourceId id : resource_ids()) {
      const ResourceType& type = type_of(id);
      if (type.saved_as.empty() || type.index != Index::layer) continue;
      for (const NamedTensor& named : (*tensors_of(id))({.type = id, .index = position.layer}, state_)) {
        const at::Tensor& values = named.tensor;
        if (!values.defined()) continue;
        Box all{std::vector<int64_t>(static_cast<size_t>(values.dim()), 0), values.sizes().vec()};
        visitor.tensor(type.saved_as + "/" + position.name + "." + named.name, values.sizes().vec(),
                       {{std::move(all)}, 0, values.numel(), values.view({-1})});
        visitor.attributes({{"trainable", false}});
      }
    }
  }
}

void Store::visit_tensors(Visitor& visitor) const {
  if (visitor.is_load()) await_readers();
  visit_units(visitor);
  visit_layers(visitor);
  visitor.end_of_tensors();
}

}  // namespace zt
