#include "compress/compress.h"
#include "memory.h"
#include "shard.h"
#include "zt/lua/state.h"

namespace zt::zero {

namespace {

// zero.memory{params = 7e9, ranks = 64, stage = 2, precision = "bf16", ...} -> bytes per rank by kind, and their total
int memory(lua_State* L) {
  const MemoryEstimate memory = memory_of(parse_memory_options(lua::check_value(L, 1)));
  lua::push(L, Value(Value::Table{{"parameters", memory.parameters},
                                  {"gradients", memory.gradients},
                                  {"master", memory.master},
                                  {"optimizer", memory.optimizer},
                                  {"buckets", memory.buckets},
                                  {"activations", memory.activations},
                                  {"total", memory.total()}}));
  return 1;
}

// zero.shard{stage = 0 to 3, axis = mesh.dp, ...} -> Pass
int shard(lua_State* L) {
  lua::push(L, make_shard(parse_shard_options(lua::check_value(L, 1))));
  return 1;
}

// zero.compress{kind = "powersgd", "int8" or "onebit", ...} -> Pass
int compress(lua_State* L) {
  lua::push(L, make_compress(parse_compress_options(lua::check_value(L, 1))));
  return 1;
}

}  // namespace

}  // namespace zt::zero

ZT_LUA_MODULE(zero) {
  module.from_lua("gathered", "zt.zero.gathered")
      .function<zt::zero::memory>("memory")
      .function<zt::zero::shard>("shard")
      .function<zt::zero::compress>("compress");
}
