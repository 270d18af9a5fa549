#include "lua/open.h"

ZT_LUA_MODULE(pipe) {
  zt::pipe::open_schedules(module);
  module.table("schedule", zt::pipe::open_recipes);
  zt::pipe::open_split(module);
}
