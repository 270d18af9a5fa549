#include "kind_costs.h"

#include "zt/base/tensor.h"

namespace zt {

namespace {

// Returns the bytes of the action's units, each of as many elements as `elements` returns for it.
int64_t unit_bytes(const Action& action, const CostBasis& basis, at::ScalarType type, auto elements) {
  int64_t count = 0;
  for (const int unit : action.units()) count += elements(basis.units[unit]);
  return count * size_of(type);
}

int64_t padded(const Unit& unit) {
  return unit.layout.padded();
}

// Collectives over W ranks of buffers of so many bytes. Each byte is read and written once where it is sent and where it arrives.
Cost one_way(int64_t bytes, int64_t ranks) {
  const int64_t sent = bytes * (ranks - 1) / ranks;
  return {.memory_bytes = 2 * sent, .sent_bytes = sent};
}
Cost there_and_back(int64_t bytes, int64_t ranks) {
  const int64_t sent = 2 * bytes * (ranks - 1) / ranks;
  return {.memory_bytes = 2 * sent, .sent_bytes = sent};
}

}  // namespace

Cost reduce_grad_cost(const Action& action, const CostBasis& basis) {
  Cost total;
  for (const int index : action.units()) {
    const Unit& unit = basis.units[index];
    const int64_t bytes = padded(unit) * size_of(basis.program.precision.reduce);
    const bool is_for_all = unit.plan.state == Residence::whole;
    const Cost cost = is_for_all ? there_and_back(bytes, basis.ranks) : one_way(bytes, basis.ranks);
    total.memory_bytes += cost.memory_bytes;
    total.sent_bytes += cost.sent_bytes;
  }
  return total;
}

Cost replicate_grad_cost(const Action& action, const CostBasis& basis) {
  const auto owned = [](const Unit& unit) { return unit.layout.chunk; };
  return there_and_back(unit_bytes(action, basis, basis.program.precision.grads, owned), basis.ranks);
}

// Each rank that holds the unit receives the gradients of the others' uses.
Cost reduce_tie_cost(const Action& action, const CostBasis& basis) {
  const Unit& unit = basis.units[action.target];
  const auto holders = static_cast<int64_t>(unit.holders.size());
  return one_way(holders * unit_bytes(action, basis, basis.program.precision.grads, padded), holders);
}

Cost unshard_cost(const Action& action, const CostBasis& basis) {
  int64_t bytes = 0;
  for (const int index : action.units()) {
    const Unit& unit = basis.units[index];
    const at::ScalarType type = basis.model.units[index].element_type(basis.program.precision.params);
    if (!unit.is_node_shared()) bytes += padded(unit) * size_of(type);
  }
  return one_way(bytes, basis.ranks);
}

// Reads the gradients that this rank owns.
Cost norm_cost(const Action&, const CostBasis& basis) {
  Cost cost;
  if (basis.program.mode != Mode::train) return cost;
  for (const Unit& unit : basis.units) {
    if (unit.plan.held && basis.model.units[unit.index].trainable)
      cost.memory_bytes += unit.layout.chunk * size_of(basis.program.precision.grads);
  }
  return cost;
}

// Each rank sends the values and gradients of its part of the tensors to their owners.
Cost gather_tensors_cost(const Action& action, const CostBasis& basis) {
  const Unit& unit = basis.units[action.target];
  const int64_t elements = unit.layout.ranks > 1 ? unit.layout.chunk : 0;
  return one_way(2 * elements * size_of(basis.program.precision.master()), basis.ranks);
}

// A whole unit is sent by its owners to all ranks, and of a sharded one to each rank its part.
Cost scatter_tensors_cost(const Action& action, const CostBasis& basis) {
  return one_way(basis.units[action.target].layout.chunk * size_of(basis.program.precision.master()), basis.ranks);
}

// Reads the gradient, reads and writes master parameters and optimizer state, and writes the rounded copy.
Cost step_cost(const Action& action, const CostBasis& basis) {
  const Precision& types = basis.program.precision;
  const int64_t exact = 2 * (1 + basis.optimizer_states) * size_of(types.master());
  const int64_t per_element = size_of(types.grads) + exact + (types.is_mixed() ? size_of(types.params) : 0);
  const int64_t elements = basis.units[action.target].layout.chunk / action.number("parts", 1);
  constexpr double kFlopsPerState = 6;  // of an Adam-like rule; the update is bound by memory
  if (!action.is_in_host_memory())
    return {.flops = kFlopsPerState * static_cast<double>(elements * (1 + basis.optimizer_states)),
            .memory_bytes = elements * per_element};
  // New parameters go to the device. Master parameters that are the parameters come from there.
  const bool are_there = !basis.units[action.target].plan.params_home.is_elsewhere();
  return {.copied = are_there ? elements * size_of(types.params) * (types.is_mixed() ? 1 : 2) : 0,
          .host_memory_bytes = elements * per_element};
}

}  // namespace zt
