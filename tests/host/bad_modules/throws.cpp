// A module that throws while it is opened.
#include "zt/lua/state.h"

ZT_LUA_MODULE(throws) {
  zt::fault("the device '{}' is on fire", module.state() ? "npu0" : "");
}
