// The parts of the module zt.pipe.
#pragma once

#include "zt/lua/state.h"

namespace zt::pipe {

void open_schedules(
    lua::Module& module);  // the types PipelineSchedule, PipelineRank and PipelineStep, and pipe.F, B, I, W, overlap
void open_recipes(lua::Module& module);  // pipe.schedule
void open_split(lua::Module& module);    // pipe.split

}  // namespace zt::pipe
