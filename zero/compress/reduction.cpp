#include "compress/reduction.h"

#include <algorithm>
#include <limits>
#include <map>

#include "zt/execute/gradient_sum.h"

namespace zt::zero {

Compressor::~Compressor() = default;

int64_t residual_elements(const UnitInfo& unit) {
  return FlatLayout(unit.numel, 1).padded();
}

Staged staged_buffer(const std::string& name) {
  return {register_pass_buffer(name, Index::unit), register_pass_buffer(name + "_next", Index::unit)};
}

const Staged& residual_buffer() {
  static const Staged buffer = staged_buffer("residual");
  return buffer;
}

ResourceId divisor_type() {
  static const ResourceId type = register_pass_buffer("residual_divisor", Index::unit);
  return type;
}

void fail(const std::vector<Reduced>& units, const StepState& state) {
  for (const Reduced& each : units) {
    each.out.fill_(std::numeric_limits<double>::quiet_NaN());
    clear_gaps(state, each.unit.index, each.out, each.first);
  }
}

namespace {

// The state of the reductions of a step.
struct Reductions {
  std::shared_ptr<Compressor> compressor;
  std::map<int, double> divisors = {};  // by unit: StepState::grad_divisor of its first reduction in the step

  // Begins with what earlier steps have kept. The gradient's scale changes with the loss scale and the number of tokens.
  void begin(const StepState& state, int unit) {
    for (const Staged& buffer : compressor->buffers())
      state.pass_buffer(buffer.next, unit).copy_(state.pass_buffer(buffer.kept, unit));
    const at::Tensor next = state.pass_buffer(residual_buffer().next, unit);
    next.copy_(state.pass_buffer(residual_buffer().kept, unit));
    const double before = state.pass_buffer(divisor_type(), unit).item<double>();
    if (before > 0 && before != state.grad_divisor) next.mul_(state.grad_divisor / before);
    divisors[unit] = state.grad_divisor;
  }

  Work reduce(const Action& action, StepState& state) {
    Communicator& comm = state.links->comm(action.axes());
    const GradientPart part = action.gradient_part();
    std::vector<Reduced> units;
    for (const int index : action.units()) {
      const Unit& unit = state.units.at(index);
      if (part == GradientPart::whole || part == GradientPart::first) begin(state, index);
      units.push_back({unit, state.model->units.at(index), state.pass_buffer(residual_buffer().next, index),
                       summed_part(unit, part), sums_parts(unit) ? unit.rank * unit.layout.chunk : 0});
    }
    if (comm.size() > 1) compressor->reduce(units, comm, state, state.failure.has_value());
    else
      for (const Reduced& each : units) send_all(each);
    if (part == GradientPart::whole) return {};
    for (const int index : action.units()) accumulate(state.units.at(index), part);
    return {};
  }

  Work keep(const Action& action, StepState& state) {
    if (!state.is_finite || state.failure) return {};
    std::vector<Staged> all = compressor->buffers();
    all.push_back(residual_buffer());
    for (const Staged& buffer : all)
      state.pass_buffer(buffer.kept, action.target).copy_(state.pass_buffer(buffer.next, action.target));
    state.pass_buffer(divisor_type(), action.target).fill_(divisors.at(action.target));
    return {};
  }

 private:
  // One rank sends nothing, so nothing is rounded, and nothing is kept from now on.
  static void send_all(const Reduced& reduced) {
    if (!reduced.out.is_alias_of(reduced.unit.grad)) reduced.out.copy_(reduced.unit.grad);
    const int64_t count = std::min(reduced.out.numel(), reduced.residual.numel());
    reduced.out.narrow(0, 0, count).add_(reduced.residual.narrow(0, 0, count));
    reduced.residual.zero_();
  }
};

}  // namespace

std::pair<std::shared_ptr<ActionHandler>, std::shared_ptr<ActionHandler>> make_reduction(std::shared_ptr<Compressor> compressor) {
  const auto reductions = std::make_shared<Reductions>(Reductions{std::move(compressor)});
  return {handler_of([reductions](const Action& action, StepState& state) { return reductions->reduce(action, state); }),
          handler_of([reductions](const Action& action, StepState& state) { return reductions->keep(action, state); })};
}

}  // namespace zt::zero
