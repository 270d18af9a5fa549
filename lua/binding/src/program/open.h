// Adds models, programs, passes, trainers and the choice of GEMM providers to zt.core.
#pragma once

#include "zt/lua/state.h"

namespace zt::lua {

void open_models(Module& module);
void open_programs(Module& module);
void open_passes(Module& module);
void open_simulations(Module& module);
void open_trainers(Module& module);
void open_trainer_tensors(Module& module);
void open_gemm(Module& module);
void open_packing(Module& module);
void open_transfers(Module& module);

// zt.optimizer{name, lr, step = function(info, p, g, state) ... end, [scope], [states], [weight_decay], [decay_all], [groups]}
int make_lua_optimizer(lua_State* L);

inline void open_program(Module& module) {
  open_models(module);
  open_programs(module);
  open_passes(module);
  open_trainers(module);
  open_simulations(module);
  open_trainer_tensors(module);
  open_gemm(module);
  open_packing(module);
  open_transfers(module);
}

}  // namespace zt::lua
