#include "ops/random.h"

#include <ATen/CPUGeneratorImpl.h>

#include "context.h"
#include "object.h"
#include "zt/error.h"
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
  Context& state = context(L);
  if (state.forbids_default_generator) {
    misuse(
        "random numbers inside a layer must not depend on the order of calls: use ctx:rng, or pass generator = "
        "zt.generator(seed)");
  }
  if (!state.generator.defined()) state.generator = at::make_generator<at::CPUGeneratorImpl>();
  return state.generator;
}

}  // namespace zt::lua
