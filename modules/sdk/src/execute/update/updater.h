// Updates a rank's parameters: STEP, GATHER_TENSORS and SCATTER_TENSORS.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "execute/update/tensor_exchange.h"
#include "zt/execute/executor.h"
#include "zt/model/optimizer.h"

namespace zt {

// The functions start the actions of these kinds. A step that is not finite on all ranks updates nothing. After a failure of this
// rank alone it sends any numbers, because the others expect them.
class Updater {
 public:
  // `state` has the units of this rank, with their owners.
  Updater(std::shared_ptr<const Optimizer> optimizer, const StepState& state);

  Work step(const Action& action, StepState& state) const;
  Work gather(const Action& action, StepState& state) const;
  Work scatter(const Action& action, StepState& state) const;

 private:
  struct OfUnit {
    std::vector<Segment> segments;           // of this rank's shard
    std::optional<TensorExchange> exchange;  // of units whose tensors are gathered
  };

  Work step_slice(const Action& action, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const;
  void step_parts(const Action& action, Unit& unit, const Scalars& scalars, const ModelInfo& model) const;
  void step_whole(const UpdatedPart& part, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const;
  void step_elements(const UpdatedPart& part, const Unit& unit, const Scalars& scalars, const ModelInfo& model) const;

  std::shared_ptr<const Optimizer> optimizer_;
  std::vector<OfUnit> units_;
};

}  // namespace zt
