// The store's tensors by name: for scripts, and for checkpoints.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "model/unit_build.h"
#include "store.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"

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

int Store::find(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < state_.model->params.size(); ++i) {
    if (state_.model->params[i].name == name) return static_cast<int>(i);
    names.push_back(state_.model->params[i].name);
  }
  const std::string found = nearest(name, names);
  misuse("the model has no parameter '{}'{}", name,
         found.empty() ? std::string(": print(model) lists them") : fmt::format(": did you mean '{}'?", found));
}

// Returns the logical tensor from the boxes that the ranks hold.
at::Tensor Store::join_boxes(int param, const at::Tensor& box) const {
  const ParamInfo& held = info(param);
  const auto axes = held.cut_axes();
  if (axes.empty()) return box;
  Communicator& comm = plan_->comm(axes);
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
    plan_->axis_of(unit).all_gather(all, chunk).synchronize();
  }
  return join_boxes(param, all.narrow(0, info(param).offset, info(param).numel).view(info(param).shape).clone());
}

// Returns, on all ranks, the logical tensor that `make` returns on the first rank that holds the unit. Only holders call `make`.
at::Tensor Store::from_holders(int param, at::ScalarType dtype, const std::function<at::Tensor()>& make) const {
  const Unit& unit = unit_of(param);
  const auto& split = state_.split_axes;
  const at::Tensor mine = unit.plan.held ? make() : at::empty(info(param).logical_shape(), at::TensorOptions().dtype(dtype));
  if (split.empty() || static_cast<int>(unit.holders.size()) == state_.coord.size(split)) return mine;
  plan_->comm(split).broadcast(mine, unit.holders.front()).synchronize();
  return mine;
}

at::Tensor Store::parameter(int param) const {
  return from_holders(param, dtype(param), [&] {
    const Unit& unit = unit_of(param);
    if (unit.owns_shard()) return whole(param, unit.shard);
    return join_boxes(param, plan_->model().params()[param]->get().detach().clone());
  });
}

at::ScalarType Store::dtype(int) const {
  return plan_->program(Mode::train).precision.params;
}

// A frozen unit has no master copy in the optimizer's precision: its parameters have the dtype in which layers see them.
at::Tensor Store::master(int param) const {
  const at::ScalarType exact = plan_->program(Mode::train).precision.master();
  return from_holders(param, exact, [&] { return whole(param, unit_of(param).master).to(exact); });
}

at::Tensor Store::gradient_shards(int param) const {
  return from_holders(param, plan_->program(Mode::train).precision.grads,
                      [&] { return whole(param, unit_of(param).grad_shard); });
}

std::map<std::string, at::Tensor> Store::optimizer_state(int param) const {
  std::map<std::string, at::Tensor> state;
  if (!state_.model->units[info(param).unit].trainable) return state;
  const at::ScalarType exact = plan_->program(Mode::train).precision.master();
  for (const std::string& key : state_names_)
    state[key] = from_holders(param, exact, [&] { return whole(param, unit_of(param).state.at(key)); });
  return state;
}

// Ranks that share parameters may still read them before they are written from outside. Collective.
void Store::await_readers() const {
  for (const Unit& unit : state_.units) {
    if (unit.plan.held && unit.is_node_shared()) return plan_->axis_of(unit).barrier();
  }
}

// Returns the values that all ranks set. All ranks throw what is wrong with the values of rank `from`.
at::Tensor Store::agree(int param, const at::Tensor& values, std::optional<int> from) const {
  std::string complaint;
  const auto shape = info(param).logical_shape();
  if (values.sizes() != at::IntArrayRef(shape))
    complaint =
        fmt::format("parameter '{}' is [{}], the values are {}", info(param).name, fmt::join(shape, ", "), describe(values));
  const World place = plan_->place();
  const auto& mesh = plan_->spec().mesh();
  if (from && (*from < 0 || *from >= place.size))
    misuse("there is no rank {} to take values from: the mesh has {}", *from, place.size);
  const bool is_taken = from && mesh;
  if (is_taken) complaint = *mesh->world()->control->all_gather_values(complaint)[*from].get_if<std::string>();
  if (!complaint.empty()) misuse("{}", complaint);
  if (!is_taken) return values.detach();
  const at::ScalarType dtype = plan_->program(Mode::train).precision.master();
  const at::Tensor agreed = place.rank == *from ? values.detach().to(dtype, false, true).contiguous()
                                                : at::empty(shape, at::TensorOptions().dtype(dtype));
  mesh->world()->communicator->broadcast(agreed, *from).synchronize();
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
  const Unit& unit = unit_of(param);
  if (!unit.plan.held) return;
  if (unit.is_node_shared()) plan_->axis_of(unit).barrier();  // other ranks may still read them
  set_owned(param, unit.master, values);
  set_owned(param, unit.shard, values);
  if (unit.is_node_shared()) plan_->axis_of(unit).barrier();
  else if (!unit.owns_shard())
    plan_->model().params()[param]->get().detach().copy_(part_of(values, info(param).box(state_.coord)));
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

void Store::visit_tensors(Visitor& visitor) const {
  if (visitor.is_load()) await_readers();
  for (int param = 0; param < static_cast<int>(state_.model->params.size()); ++param) {
    if (!unit_of(param).plan.held) continue;
    const std::string& name = info(param).name;
    const auto shape = info(param).logical_shape();
    visitor.tensor("model/" + name, shape, piece_of(param, unit_of(param).master));
    visitor.attributes(attributes_of(info(param), *state_.model));
    for (const auto& [key, buffer] : unit_of(param).state)
      visitor.tensor("optimizer/" + key + "/" + name, shape, piece_of(param, buffer));
  }
  visit_buffers(visitor);
  visitor.end_of_tensors();
}

// The buffers are equal on all ranks that run the layer.
void Store::visit_buffers(Visitor& visitor) const {
  const ModelInfo& info = *state_.model;
  const std::vector<bool> runs = positions_run(plan_->program(Mode::train), info);
  std::set<int> visited;
  for (size_t p = 0; p < info.positions.size(); ++p) {
    if (!runs[p] || !visited.insert(info.positions[p].layer).second) continue;
    for (const LayerBuffer& buffer : plan_->model().positions()[p].layer->buffers()) {
      Box whole{std::vector<int64_t>(static_cast<size_t>(buffer.values.dim()), 0), buffer.values.sizes().vec()};
      visitor.tensor("model/" + info.positions[p].name + "." + buffer.name, buffer.values.sizes().vec(),
                     {{std::move(whole)}, 0, buffer.values.numel(), buffer.values.view({-1})});
      visitor.attributes({{"trainable", false}});
    }
  }
}

}  // namespace zt
