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

std::optional<RankMistake> find_mistake(Communicator& over, const std::string& complaint, const std::string& alike,
                                        const std::string& activity) {
  Value::List given;
  given.reserve(2);
  given.emplace_back(complaint);
  given.emplace_back(alike);
  const std::vector<Value> all = over.all_gather_values(given, activity);
  const auto text_of = [&](size_t rank, size_t place) {
    return *all[rank].get_if<Value::List>()->at(place).get_if<std::string>();
  };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (const std::string of_rank = text_of(rank, 0); !of_rank.empty()) return RankMistake{.rank = rank, .complaint = of_rank};
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (text_of(rank, 1) != text_of(0, 1)) return RankMistake{.rank = rank, .first = text_of(0, 1), .other = text_of(rank, 1)};
  }
  return {};
}

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
  const auto mistake = find_mistake(*own_, mine, std::to_string(requests), "agrees on a request of an engine");
  if (!mistake || !mine.empty()) return mine;
  if (!mistake->complaint.empty()) return fmt::format("rank {} of '{}': {}", mistake->rank, own_->name(), mistake->complaint);
  return fmt::format("rank {} of '{}' gives {} requests, and rank 0 {}: all ranks of a replica give the same", mistake->rank,
                     own_->name(), mistake->other, mistake->first);
}

int64_t Replica::least(int64_t number) const {
  return own_ ? reduced(*own_, number, ReduceOp::min) : number;
}

bool Replica::any(bool mine) const {
  return coupled_ ? reduced(*coupled_, mine ? 1 : 0, ReduceOp::max) != 0 : mine;
}

}  // namespace zt::infer
