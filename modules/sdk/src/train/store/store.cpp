#include "store.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "held_memories.h"
#include "owned_data.h"
#include "zt/base/error.h"

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

// The part of a parameter in this rank's shard, of what the optimizer updates, where it lies in slices.
class OwnedSource final : public PieceSource {
 public:
  OwnedSource(const StepState& state, const Unit& unit, std::string tensor, int64_t place, at::ScalarType dtype)
      : state_(state), unit_(unit), tensor_(std::move(tensor)), place_(place), dtype_(dtype) {}

  at::ScalarType dtype() const override { return dtype_; }
  void read(int64_t first, at::Tensor to) const override {
    owned_data::read(state_, unit_, tensor_, place_ + first, std::move(to));
  }
  void write(int64_t first, const at::Tensor& from) override { owned_data::write(state_, unit_, tensor_, place_ + first, from); }
  std::shared_ptr<PieceSource> keep(int64_t first, int64_t count) const override {
    return owned_data::keep(state_, unit_, tensor_, {place_ + first, count});
  }

 private:
  const StepState& state_;
  const Unit& unit_;
  const std::string tensor_;
  const int64_t place_;  // of the piece's first element, counted in the owned part
  const at::ScalarType dtype_;
};

Piece whole_piece(const at::Tensor& tensor) {
  Box all{std::vector<int64_t>(static_cast<size_t>(tensor.dim()), 0), tensor.sizes().vec()};
  return {{std::move(all)}, 0, tensor.numel(), tensor.view({-1}), {}};
}

}  // namespace

static int64_t next_number() {
  static std::atomic<int64_t> made{0};
  return ++made;
}

Store::Store(std::shared_ptr<const Plan> plan, std::shared_ptr<const Links> links, Buffers buffers)
    : plan_(std::move(plan)), number_(next_number()) {
  const ModelInfo& model = plan_->model();
  const at::ScalarType computed = plan_->main().precision.params;
  for (const ParamInfo& param : model.params) tensors_.push_back({param.name, param.shape, computed, true});
  for (const BufferInfo& buffer : model.buffers)
    tensors_.push_back({buffer.name, buffer.initial.sizes().vec(), buffer.initial.scalar_type(), false});
  state_.model = &model;
  state_.links = std::move(links);
  state_.units = plan_->rank_units().units;
  if (buffers == Buffers::none) return;
  made_ = allocate_state(*plan_, state_);
  gather_parameters();
}

int Store::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &ModelTensor::name);
  if (found != tensors_.end()) return static_cast<int>(found - tensors_.begin());
  const std::string near = nearest(name, names_of(tensors_, &ModelTensor::name));
  misuse("the model has no parameter '{}'{}", name,
         near.empty() ? std::string(": print(model) lists them") : fmt::format(": did you mean '{}'?", near));
}

int Store::find_parameter(const std::string& name, const char* what) const {
  const int found = find(name);
  if (is_buffer(found)) misuse("'{}' is a tensor that its layer changes itself, no parameter: it has no {}", name, what);
  return found;
}

Piece Store::piece_of(int param, const at::Tensor& chunk) const {
  const OwnedRun run = owned(param);
  return run_of(param, chunk.narrow(0, run.place, run.count));
}

Piece Store::run_of(int param, const at::Tensor& run) const {
  return {info(param).boxes(place().coord), owned(param).first, run.numel(), run, {}};
}

Piece Store::sliced_piece_of(int param, const std::string& tensor) const {
  const OwnedRun run = owned(param);
  const Unit& unit = unit_of(param);
  const Precision& types = plan_->main().precision;
  const at::ScalarType dtype = tensor == "master" && !unit.has_own_master ? types.params : types.master();
  return {info(param).boxes(place().coord),
          run.first,
          run.count,
          {},
          std::make_shared<OwnedSource>(state_, unit, tensor, run.place, dtype)};
}

// Returns the tensors of this type that lie in slices, by their names in owned_data.h.
std::vector<std::string> Store::sliced_tensors(const Unit& unit, ResourceId type) const {
  if (type == resource::state && unit.is_sliced(UnitData::state)) {
    std::vector<std::string> names = state_.elsewhere.map.of(UnitData::state, unit.index).tensors;
    std::erase(names, "master");
    return names;
  }
  const bool is_master = type == resource::master && unit.is_sliced(unit.has_own_master ? UnitData::state : UnitData::params);
  return is_master ? std::vector<std::string>{"master"} : std::vector<std::string>();
}

const UpdatedPart* Store::updated_part(int param) const {
  const std::vector<UpdatedPart>& parts = unit_of(param).parts;
  const auto found = std::ranges::find(parts, param, &UpdatedPart::param);
  return found == parts.end() ? nullptr : &*found;
}

void Store::gather_parameters() {
  ++state_.replacements;
  for (const Unit& unit : state_.units) {
    if (!unit.plan.held) continue;
    owned_data::round_master(state_, unit);
    if (unit.is_node_shared()) shard_axes_of(unit).barrier();
    else if (unit.layout.ranks > 1 && !unit.owns_shard()) shard_axes_of(unit).all_gather(unit.full, unit.shard).synchronize();
  }
}

std::map<std::string, int64_t> Store::bytes() const {
  std::map<std::string, int64_t> bytes{{"buckets", 0}};
  for (const ResourceId id : resource_ids()) {
    if (!type_of(id).memory.empty() && tensors_of(id)) bytes[type_of(id).memory] = 0;
  }
  for (const HeldMemory& memory : held_memories(state_)) bytes[memory.kind] += memory.bytes.numel();
  for (const auto& [tier, held] : plan_->rank().elsewhere) bytes[tier] = held;  // reserved when the store was made
  return bytes;
}

at::Tensor Store::memory_like(const c10::StorageImpl* storage, int64_t bytes) const {
  const auto made = std::ranges::find_if(
      made_, [&](const MadeBuffer& each) { return each.buffer.storage().unsafeGetStorageImpl() == storage; });
  if (made == made_.end()) return at::empty({bytes}, at::device(state_.links->device()).dtype(at::kByte));
  return make_buffer(state_, made->movers, made->buffer.numel(), made->buffer.scalar_type());
}

void Store::free_memory() const {
  std::set<std::vector<std::string>> movers;
  for (const MadeBuffer& made : made_) movers.insert(made.movers.begin(), made.movers.end());
  for (const auto& axes : movers) {
    if (!axes.empty()) state_.links->comm(axes).drain();
  }
}

// Ranks that share parameters may still read them before they are written from outside. Collective.
void Store::await_readers() const {
  for (const Unit& unit : state_.units) {
    if (unit.plan.held && unit.is_node_shared()) return shard_axes_of(unit).barrier();
  }
}

// Gives the owned part of each parameter that is not packed in the tensors of the saved types of units, under the names
// "model/NAME" for `master` and "optimizer/exp_avg/NAME" for `state.exp_avg`.
void Store::visit_units(Visitor& visitor) const {
  for (int param = 0; param < static_cast<int>(state_.model->params.size()); ++param) {
    const Unit& unit = unit_of(param);
    if (!unit.plan.held || info(param).is_packed()) continue;
    for (const ResourceId id : resource_ids()) {
      const ResourceType& type = type_of(id);
      if (type.saved_as.empty() || type.index != Index::unit) continue;
      const auto sliced = sliced_tensors(unit, id);
      for (const std::string& tensor : sliced) {
        const size_t dot = tensor.find('.');
        const std::string part = dot == std::string::npos ? "" : tensor.substr(dot + 1) + "/";
        visitor.tensor(type.saved_as + "/" + part + info(param).name, info(param).shape, sliced_piece_of(param, tensor));
        if (id == resource::master) visitor.attributes(attributes_of(info(param), *state_.model));
      }
      if (!sliced.empty()) continue;
      for (const NamedTensor& named : (*tensors_of(id))({.type = id, .index = unit.index}, state_)) {
        const size_t dot = named.name.find('.');
        const std::string part = dot == std::string::npos ? "" : named.name.substr(dot + 1) + "/";
        if (!named.param.empty() && named.param != info(param).name) continue;
        const std::string name = type.saved_as + "/" + part + info(param).name;
        if (named.param.empty()) visitor.tensor(name, info(param).shape, piece_of(param, named.tensor));
        else if (!updated_part(param)->is_whole) visitor.tensor(name, info(param).shape, run_of(param, named.tensor));
        else visitor.tensor(name, named.tensor.sizes().vec(), whole_piece(named.tensor));
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
        visitor.tensor(type.saved_as + "/" + position.name + "." + named.name, values.sizes().vec(), whole_piece(values));
        visitor.attributes({{"trainable", false}});
      }
    }
  }
}

namespace {

// The place of a rank among the values of a pass's buffer that differ from one another.
struct BufferRow {
  int64_t rows = 1, row = 0;
};

// `axes`: along which ranks have other values.
BufferRow row_of(const Plan& plan, const RankPlace& place, const PassBuffer& buffer, const std::vector<std::string>& axes) {
  const auto values_at = [&](int rank) { return Coord{place.coord.shape, rank}.index(axes); };
  std::set<int> all;
  for (int rank = 0; rank < place.coord.shape.world_size(); ++rank) {
    if (plan.programs_of_ranks()[rank]->find_buffer(buffer.type, buffer.index)) all.insert(values_at(rank));
  }
  return {static_cast<int64_t>(all.size()), std::distance(all.begin(), all.find(values_at(place.coord.rank)))};
}

// The axes along which ranks have other values in a buffer that is "own" or "local". Stages that hold a tied unit have copies.
std::vector<std::string> axes_of_own(const MeshShape& mesh, Index of, const RankProgram& program) {
  std::vector<std::string> axes = names_of(mesh.axes(), &AxisSize::name);
  if (of == Index::unit)
    std::erase_if(axes, [&](const std::string& axis) { return std::ranges::count(program.split_axes, axis) > 0; });
  return axes;
}

}  // namespace

// Gives the buffers of passes under the names "buffers/ema/head.weight" (sharded), "buffers/residual/head" or "buffers/count".
// Where ranks have other values, the tensor has a row for each.
void Store::visit_pass_buffers(Visitor& visitor) const {
  const ModelInfo& model = *state_.model;
  for (const auto& [buffer, values] : state_.pass_buffers) {
    if (!buffer.is_saved) continue;
    const ResourceType& type = type_of(buffer.type);
    const std::string name = "buffers/" + type.name, owner = owner_name(type.index, buffer.index, model);
    std::vector<std::string> axes;  // along which ranks have other values
    if (type.index == Index::unit) axes = info(model.units[buffer.index].params.front()).cut_axes();
    const bool is_cut = !axes.empty();
    if (buffer.residence == BufferResidence::sharded) {
      for (const int param : model.units[buffer.index].params)
        visitor.tensor(name + "/" + info(param).name, info(param).shape, piece_of(param, values));
      continue;
    }
    if (buffer.residence != BufferResidence::whole)
      axes = axes_of_own(place().coord.shape, type.index, *plan_->programs_of_ranks()[static_cast<size_t>(place().coord.rank)]);
    const std::string full_name = owner.empty() ? name : name + "/" + owner;
    if (buffer.residence == BufferResidence::whole && !is_cut) {
      visitor.tensor(full_name, buffer.shape, whole_piece(values));
      if (type.index == Index::unit) visitor.rows_of_ranks(Visitor::Rows::dropped);  // the unit may be cut on another layout
      continue;
    }
    const BufferRow row = row_of(*plan_, place(), buffer, axes);
    Piece piece = whole_piece(values.unsqueeze(0));
    piece.boxes[0].begin[0] = row.row;
    piece.boxes[0].end[0] = row.row + 1;
    std::vector<int64_t> shape = buffer.shape;
    shape.insert(shape.begin(), row.rows);
    visitor.tensor(full_name, shape, std::move(piece));
    const bool is_summed = buffer.residence == BufferResidence::own && !is_cut;
    visitor.rows_of_ranks(is_summed ? Visitor::Rows::summed : Visitor::Rows::dropped);
  }
}

void Store::visit_tensors(Visitor& visitor) {
  packed_.visit(*this, visitor);  // first: it refuses a load before anything has changed
  if (visitor.is_load()) await_readers();
  visit_units(visitor);
  visit_layers(visitor);
  visit_pass_buffers(visitor);
  visitor.end_of_tensors();
}

}  // namespace zt
