#include "compress/reduction.h"

#include <limits>

#include "zt/execute/gradient_sum.h"

namespace zt::zero {

Compressor::~Compressor() = default;

int64_t residual_elements(const UnitInfo& unit) {
  return FlatLayout(unit.numel, 1).padded();
}

ResourceId residual_type() {
  static const ResourceId type = register_pass_buffer("residual", Index::unit);
  return type;
}

ResourceId divisor_type() {
  static const ResourceId type = register_pass_buffer("residual_divisor", Index::unit);
  return type;
}

void fail(const std::vector<Reduced>& units, const ModelInfo& model) {
  for (const Reduced& each : units) {
    each.out.fill_(std::numeric_limits<double>::quiet_NaN());
    clear_gaps(model, each.unit.index, each.out, each.first);
  }
}

namespace {

// The gradient's scale changes with the loss scale and the number of tokens.
void rescale(const at::Tensor& residual, const at::Tensor& divisor, double grad_divisor) {
  const double before = divisor.item<double>();
  if (before == grad_divisor) return;
  if (before > 0) residual.mul_(grad_divisor / before);
  divisor.fill_(grad_divisor);
}

class CompressedReduction final : public ActionHandler {
 public:
  explicit CompressedReduction(std::shared_ptr<Compressor> compressor) : compressor_(std::move(compressor)) {}

  Work start(const Action& action, StepState& state) override {
    Communicator& comm = state.links->comm(action.axes());
    const GradientPart part = action.gradient_part();
    const bool is_failed = state.failure.has_value();
    std::vector<Reduced> units;
    for (const int index : action.units()) {
      const Unit& unit = state.units.at(index);
      const at::Tensor residual = state.pass_buffer(residual_type(), index);
      if (!is_failed) rescale(residual, state.pass_buffer(divisor_type(), index), state.grad_divisor);
      units.push_back({unit, state.model->units.at(index), residual, summed_part(unit, part),
                       sums_parts(unit) ? unit.rank * unit.layout.chunk : 0});
    }
    if (comm.size() > 1) compressor_->reduce(units, comm, state, is_failed);
    else for (const Reduced& each : units) copy_own(each);
    if (part == GradientPart::whole) return {};
    for (const int index : action.units()) accumulate(state.units.at(index), part);
    return {};
  }

 private:
  // One rank sends nothing, so nothing is rounded.
  static void copy_own(const Reduced& reduced) {
    if (!reduced.out.is_alias_of(reduced.unit.grad)) reduced.out.copy_(reduced.unit.grad);
  }

  std::shared_ptr<Compressor> compressor_;
};

}  // namespace

std::shared_ptr<ActionHandler> make_reduction(std::shared_ptr<Compressor> compressor) {
  return std::make_shared<CompressedReduction>(std::move(compressor));
}

}  // namespace zt::zero
