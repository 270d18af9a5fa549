// A module that calls what its libraries no longer have.
#include "zt/lua/state.h"

namespace zt {
void gone_in_this_version(int);
}

ZT_LUA_MODULE(undefined_symbol) {
  zt::gone_in_this_version(module.state() ? 1 : 0);
}
