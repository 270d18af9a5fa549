// Messages by level on the standard error output; zt.log in Lua is the same.
#pragma once

#include <cstdint>
#include <string>

#include "zt/process/world.h"

namespace zt {

enum class LogLevel : uint8_t { debug, info, warn, error, off };

LogLevel parse_log_level(const std::string& name);  // Misuse with the nearest name
const char* name_of(LogLevel level);

// What is shown: of this level and above. At first ZT_LOG says, or info. Of the process: all its ranks share it.
LogLevel log_level();
LogLevel set_log_level(LogLevel level);  // returns the level so far

// "[warn rank 1] text". Messages below warn come from rank 0 only, unless the level is debug.
void log(LogLevel level, const World& world, const std::string& text);

}  // namespace zt
