// A valid module whose functions throw: a Misuse, and an exception that is not a std::exception.
#include "zt/lua/state.h"

namespace {

int misuse(lua_State*) {
  zt::misuse("there is no axis 'dq': did you mean 'dp'?");
}

int foreign(lua_State*) {
  throw 42;
}

}  // namespace

ZT_LUA_MODULE(misuses) {
  module.function<misuse>("misuse").function<foreign>("foreign");
}
