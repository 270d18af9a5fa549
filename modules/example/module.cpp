// The binding of zt.example: reads options and makes objects.
#include "scale.h"
#include "weight_norm.h"
#include "zt/base/options.h"
#include "zt/lua/state.h"

namespace {

using namespace zt;

struct ScaleOptions {
  int64_t channels = 0;
};
const auto kScale =
    Schema<ScaleOptions>("example.scale").required("channels", &ScaleOptions::channels, "size of the last dim", at_least(1));

struct WeightNormArguments {
  int64_t every = 1;
  std::shared_ptr<lua::Callable> report;
};
const auto kWeightNorm =
    Schema<WeightNormArguments>("example.weight_norm")
        .optional("every", &WeightNormArguments::every, "steps between two reports", at_least(1))
        .required("report", &WeightNormArguments::report, "function(step, unit, norm), called on every rank");

// example.scale{channels = 256}
int scale(lua_State* L) {
  const auto make = [](const ScaleOptions& options) -> std::shared_ptr<Layer> {
    return std::make_shared<example::Scale>(options.channels);
  };
  lua::push(L, kScale.make(lua::check_value(L, 1), make));
  return 1;
}

// example.weight_norm{every = 10, report = function(step, unit, norm) ... end}
int weight_norm(lua_State* L) {
  const WeightNormArguments options = kWeightNorm.parse(lua::check_value(L, 1));
  const auto report = [function = options.report](int64_t step, const std::string& unit, double norm) {
    lua_State* state = function->begin();
    lua::push(state, step);
    lua::push(state, unit);
    lua::push(state, norm);
    function->call(3, 0);
  };
  lua::push(L, std::shared_ptr<Pass>(std::make_shared<example::WeightNorm>(example::WeightNormOptions{options.every, report})));
  return 1;
}

}  // namespace

ZT_LUA_MODULE(example) {
  module.function<scale>("scale").function<weight_norm>("weight_norm");
}
