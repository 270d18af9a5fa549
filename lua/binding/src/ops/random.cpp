#include "ops/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include "binding_state.h"
#include "object.h"
#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt {
ZT_DEFINE_OBJECT(lua::Floating, "floating number")
ZT_DEFINE_OBJECT(lua::Generator, "Generator")
}  // namespace zt

namespace zt::lua {

std::optional<double> floating_at(lua_State* L, int index) {
  if (object_tag(L, index) != &tag_of<Floating>()) return std::nullopt;
  return check<Floating>(L, index)->value;
}

bool is_generator(lua_State* L, int index) {
  return object_tag(L, index) == &tag_of<Generator>();
}

at::Generator& own_generator(lua_State* L) {
  BindingState& state = binding_state(L);
  if (state.forbids_default_generator) {
    misuse(
        "random numbers in a layer or an optimizer must be the same in a recompute, on any mesh and after a resume: in a layer use "
        "ctx:dropout(x, probability), or pass generator = zt.generator(seed) with a seed made of ctx.step and ctx.micro_batch; in "
        "an optimizer make the seed of info.step; a function without such numbers, as `select` of a mixture of experts, draws "
        "none");
  }
  if (!state.generator.defined()) state.generator = at::make_generator<at::CPUGeneratorImpl>();
  return state.generator;
}

NoDefaultRandom::NoDefaultRandom(lua_State* L)
    : L_(L), before_(std::exchange(binding_state(L).forbids_default_generator, true)) {}

NoDefaultRandom::~NoDefaultRandom() {
  binding_state(L_).forbids_default_generator = before_;
}

}  // namespace zt::lua
