#include "engine/replica.h"

#include <ATen/ops/full.h>

#include <algorithm>

#include "zt/program/kind.h"

namespace zt::infer {

namespace {

// Returns the control communicator over these axes; null for one rank.
std::shared_ptr<Communicator> control_over(const std::shared_ptr<Mesh>& mesh, const std::vector<std::string>& axes) {
  if (axes.empty()) return nullptr;
  return (axes.size() == 1 ? mesh->axis(axes[0]) : mesh->join(axes))->control;
}

int64_t reduced(Communicator& over, int64_t number, ReduceOp op) {
  const at::Tensor tensor = at::full({1}, number, at::kLong);
  over.all_reduce(tensor, tensor, op).synchronize();
  return tensor.item<int64_t>();
}

}  // namespace

Replica::Replica(const Trainer& trainer) {
  const Program& program = trainer.program();
  if (!program.mesh()) return;
  const RankPlace& place = trainer.state().links->place();
  const bool is_coupled = communicates(program.build(Mode::generate, place.coord), program.info());
  std::vector<std::string> own, coupled;
  for (const AxisSize& axis : place.coord.shape.axes()) {
    if (axis.size == 1) continue;
    const bool has_other_samples = std::ranges::find(place.sample_axes, axis.name) != place.sample_axes.end();
    if (!has_other_samples) own.push_back(axis.name);
    else if (is_coupled) coupled.push_back(axis.name);
  }
  own_ = control_over(program.mesh(), own);
  coupled_ = control_over(program.mesh(), coupled);
}

Value Replica::from_first(const Value& value) const {
  return own_ ? own_->all_gather_values(is_first() ? value : Value(), "runs a step of an engine")[0] : value;
}

std::string Replica::agreed(const std::string& mine, int64_t requests) const {
  if (!own_) return mine;
  Value::List given;
  given.reserve(2);
  given.emplace_back(mine);
  given.emplace_back(requests);
  const std::vector<Value> all = own_->all_gather_values(given, "agrees on a request of an engine");
  const auto text_of = [&](size_t rank) { return *all[rank].get_if<Value::List>()->at(0).get_if<std::string>(); };
  const auto number_of = [&](size_t rank) { return *all[rank].get_if<Value::List>()->at(1).get_if<int64_t>(); };
  for (size_t rank = 0; rank < all.size() && mine.empty(); ++rank) {
    if (const std::string other = text_of(rank); !other.empty())
      return fmt::format("rank {} of '{}': {}", rank, own_->name(), other);
  }
  for (size_t rank = 0; rank < all.size() && mine.empty(); ++rank) {
    if (number_of(rank) != number_of(0))
      return fmt::format("rank {} of '{}' gives {} requests, and rank 0 {}: all ranks of a replica give the same", rank,
                         own_->name(), number_of(rank), number_of(0));
  }
  return mine;
}

int64_t Replica::least(int64_t number) const {
  return own_ ? reduced(*own_, number, ReduceOp::min) : number;
}

bool Replica::any(bool mine) const {
  return coupled_ ? reduced(*coupled_, mine ? 1 : 0, ReduceOp::max) != 0 : mine;
}

}  // namespace zt::infer
