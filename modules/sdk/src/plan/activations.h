// The memory of a step's activations, predicted.
#pragma once

#include <functional>

#include "plan/rank_plan.h"
#include "zt/execute/executor.h"

namespace zt {

// Returns the peak of the bytes that `program` allocates within a step, on the rank that holds `held`: its forwards and backwards
// run on tensors without memory (device meta). `fields`: the rank's part of a global batch on device meta. `comm`: as
// StepState::comm. The model's parameters are meta tensors during the call. Throws Misuse, naming the layer, if one of its
// operators does not run on meta tensors.
int64_t predict_activations(const std::shared_ptr<Model>& model, const Program& program, const RankUnits& held,
                            const std::function<Communicator&(const std::vector<std::string>&)>& comm, const Batch& fields);

}  // namespace zt
