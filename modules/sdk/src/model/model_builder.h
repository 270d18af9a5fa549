// Makes the description of a model from its layers.
#pragma once

#include <vector>

#include "zt/model/model.h"

namespace zt {

struct DescribedModel {
  ModelInfo info;  // except what depends on which parameters are trained
  Params params;   // in the order of info.params
};

// Gives further uses of a layer the name of the first, and each Param its full name. Throws Misuse as the constructor of Model.
DescribedModel describe_model(std::vector<NamedLayer>& layers);

}  // namespace zt
