#include "zt/model/optimizer.h"

#include "zt/base/error.h"

namespace zt {

Optimizer::~Optimizer() = default;
Schedule::~Schedule() = default;

void Optimizer::check(const ModelInfo&) const {}

Scope Optimizer::scope(const ParamInfo&) const {
  return Scope::element;
}

std::vector<StateInfo> Optimizer::states_of(const ParamInfo& param) const {
  std::vector<StateInfo> states;
  for (const std::string& name : state_names()) states.push_back({name, param.shape});
  return states;
}

void Optimizer::step_tensor(const OwnedTensor& tensor, const at::Tensor&, const Scalars&) const {
  fault("the optimizer {} has no rule for '{}' as a whole tensor", kind(), tensor.param.name);
}

double Optimizer::work_of(const ParamInfo& param) const {
  return static_cast<double>(param.numel());
}

ZT_DEFINE_OBJECT(Optimizer, "Optimizer")
ZT_DEFINE_OBJECT(Schedule, "Schedule")

}  // namespace zt
