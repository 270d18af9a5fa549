// The parts of zt.core.
#pragma once

#include "zt/lua/state.h"

namespace zt::lua {

void open_operators(Module& module);  // op, ops, and every operator by __index
void open_json(Module& module);       // json.encode, json.decode
void open_files(Module& module);      // exists, mkdir_p, copy_file, write_file
void open_system(Module& module);     // world, now, sleep, memory, isatty, terminal_width, num_threads, set_num_threads, suggest

}  // namespace zt::lua
