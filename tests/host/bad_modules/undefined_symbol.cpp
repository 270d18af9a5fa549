// A module that calls a function that its libraries do not define.
#include "zt/lua/state.h"

namespace zt {
void gone_in_this_version(int);
}

ZT_LUA_MODULE(undefined_symbol) {
  zt::gone_in_this_version(module.state() ? 1 : 0);
}
