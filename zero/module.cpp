#include "shard.h"
#include "zt/lua/state.h"

namespace zt::zero {

namespace {

// zero.shard{stage = 0 | 1, axis = mesh.dp, bucket_bytes = n, reduce_every = "step" | "micro_batch"} -> Pass
int shard(lua_State* L) {
  lua::push(L, make_shard(parse_shard_options(lua::check_value(L, 1))));
  return 1;
}

}  // namespace

}  // namespace zt::zero

ZT_LUA_MODULE(zero) {
  module.function<zt::zero::shard>("shard");
}
