#include "tensor_exchange.h"

#include <algorithm>
#include <numeric>

#include "zt/base/error.h"

namespace zt {

namespace {

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// The axes of `unit` along which ranks hold equal parts of its tensors.
std::vector<std::string> equal_axes(const ModelInfo& model, const Unit& unit) {
  std::vector<std::string> axes = unit.owner_axes;
  const auto cut = model.params[model.units[unit.index].params.front()].cut_axes();
  std::erase_if(axes, [&](const std::string& axis) {
    return std::ranges::find(unit.plan.shard_axes, axis) != unit.plan.shard_axes.end() ||
           std::ranges::find(cut, axis) != cut.end();
  });
  return axes;
}

// Returns the unit as the rank `coord` has it, without buffers: its index within the layout.
Unit as_held_by(const Unit& unit, const Coord& coord) {
  Unit other;
  other.layout = unit.layout;
  other.rank = coord.index(unit.plan.shard_axes);
  return other;
}

}  // namespace

TensorExchange::TensorExchange(const ModelInfo& model, const Unit& unit, const Coord& coord) {
  const std::vector<int> group = coord.shape.group(coord.rank, unit.owner_axes);
  const std::vector<std::string> equal = equal_axes(model, unit);
  const std::vector<int>& params = model.units[unit.index].params;
  const int me = coord.index(unit.owner_axes), ranks = static_cast<int>(group.size());
  for (auto* counts : {&to_owners_, &from_holders_, &to_holders_, &from_owners_}) counts->assign(group.size(), 0);
  std::vector<OwnedRun> mine;
  std::vector<int> owned_places;
  for (size_t place = 0; place < params.size(); ++place) {
    mine.push_back(owned_run(model.params[params[place]], unit, coord));
    if (unit.owners[place] != me) continue;
    const ParamInfo& param = model.params[params[place]];
    tensors_.push_back({params[place], param.shape, owned_});
    owned_places.push_back(static_cast<int>(place));
    owned_ += param.numel();
  }
  for (int peer = 0; peer < ranks; ++peer) {
    const Coord other{coord.shape, group[static_cast<size_t>(peer)]};
    const bool is_source = other.index(equal) == coord.index(equal);
    const auto rank = static_cast<size_t>(peer);
    for (size_t place = 0; place < params.size(); ++place) {
      if (unit.owners[place] != peer || mine[place].count == 0) continue;
      held_.push_back({peer, mine[place], is_source});
      from_owners_[rank] += mine[place].count;
      if (is_source) to_owners_[rank] += 2 * mine[place].count;
    }
    const Unit theirs = as_held_by(unit, other);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const ParamInfo& param = model.params[tensors_[i].param];
      const OwnedRun run = owned_run(param, theirs, other);
      if (run.count == 0) continue;
      received_.push_back({peer, run, is_source, param.boxes(other), i});
      to_holders_[rank] += run.count;
      if (is_source) from_holders_[rank] += 2 * run.count;
    }
  }
  sent_ = sum_of(from_owners_);
  received_at_ = 2 * sent_;
  values_ = received_at_ + std::max(sum_of(from_holders_), sum_of(to_holders_));
  gradients_ = values_ + owned_;
}

at::Tensor TensorExchange::owned_tensor(const Unit& unit, int param, int64_t region) const {
  const auto found = std::ranges::find(tensors_, param, &Owned::param);
  if (found == tensors_.end()) fault("unit {}: this rank does not own parameter {}", unit.index, param);
  const int64_t count = std::accumulate(found->shape.begin(), found->shape.end(), int64_t{1}, std::multiplies<>());
  return unit.staging.narrow(0, region + found->offset, count).view(found->shape);
}

// Each part is sent as its values and then its gradient.
Work TensorExchange::gather(const Unit& unit, Communicator& comm) const {
  const at::Tensor& staging = unit.staging;
  int64_t at = 0;
  for (const Part& part : held_) {
    if (!part.is_source) continue;
    for (const at::Tensor& from : {unit.master, unit.grad_shard}) {
      staging.narrow(0, at, part.run.count).copy_(from.narrow(0, part.run.place, part.run.count));
      at += part.run.count;
    }
  }
  const at::Tensor in = staging.narrow(0, received_at_, sum_of(from_holders_));
  return then(comm.all_to_all(in, staging.narrow(0, 0, at), from_holders_, to_owners_, Async::yes),
              [this, staging] { unpack(staging); });
}

// Puts received parts into the owned tensors.
void TensorExchange::unpack(const at::Tensor& staging) const {
  int64_t at = received_at_;
  for (const Part& part : received_) {
    if (!part.is_source) continue;
    const Owned& tensor = tensors_[part.tensor];
    for (const int64_t region : {values_, gradients_}) {
      for_each_run(part.boxes, tensor.shape, part.run.first, part.run.first + part.run.count, [&](const BoxRun& run) {
        staging.narrow(0, region + tensor.offset + run.in_tensor, run.count)
            .copy_(staging.narrow(0, at + run.in_boxes - part.run.first, run.count));
      });
      at += part.run.count;
    }
  }
}

// Puts the parts of the owned tensors' new values in the order in which they are sent.
void TensorExchange::pack(const at::Tensor& staging) const {
  int64_t at = received_at_;
  for (const Part& part : received_) {
    const Owned& tensor = tensors_[part.tensor];
    for_each_run(part.boxes, tensor.shape, part.run.first, part.run.first + part.run.count, [&](const BoxRun& run) {
      staging.narrow(0, at + run.in_boxes - part.run.first, run.count)
          .copy_(staging.narrow(0, values_ + tensor.offset + run.in_tensor, run.count));
    });
    at += part.run.count;
  }
}

Work TensorExchange::scatter(const Unit& unit, Communicator& comm) const {
  const at::Tensor& staging = unit.staging;
  pack(staging);
  const at::Tensor out = staging.narrow(0, received_at_, sum_of(to_holders_));
  return then(comm.all_to_all(staging.narrow(0, 0, sent_), out, from_owners_, to_holders_, Async::yes), [this, &unit] {
    int64_t at = 0;
    for (const Part& part : held_) {
      unit.master.narrow(0, part.run.place, part.run.count).copy_(unit.staging.narrow(0, at, part.run.count));
      at += part.run.count;
      unit.round_master(part.run.place, part.run.count);
    }
  });
}

Work broadcast_tensors(const ModelInfo& model, const Unit& unit, Communicator& comm) {
  std::vector<Work> works;
  std::vector<OwnedRun> runs;
  for (size_t place = 0; place < unit.owners.size(); ++place) {
    if (unit.owners[place] < 0) continue;
    const ParamInfo& param = model.params[model.units[unit.index].params[place]];
    const OwnedRun run{0, param.room, param.offset};
    works.push_back(comm.broadcast(unit.master.narrow(0, run.place, run.count), unit.owners[place], Async::yes));
    runs.push_back(run);
  }
  if (works.empty()) return {};
  return then(all_of(std::move(works)), [runs = std::move(runs), &unit] {
    for (const OwnedRun& run : runs) unit.round_master(run.place, run.count);
  });
}

}  // namespace zt
