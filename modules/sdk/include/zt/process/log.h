// Messages by level, on standard error. The Lua function zt.log uses the same level.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "zt/process/world.h"

namespace zt {

enum class LogLevel : uint8_t { debug, info, warn, error, off };
constexpr auto words_of(LogLevel) {
  return std::array{"debug", "info", "warn", "error", "off"};
}

LogLevel parse_log_level(const std::string& name);  // throws Misuse, with the nearest name
const char* name_of(LogLevel level);

// The lowest level that is shown. It belongs to the process: all its ranks share it. Initially it is what the environment
// variable ZT_LOG names, or info. Throws Misuse if ZT_LOG names no level.
LogLevel set_log_level(LogLevel level);  // returns the level until now

// Writes "[warn rank 1] text". Messages below warn come from rank 0 only, unless the level is debug.
void log(LogLevel level, const World& world, const std::string& text);

}  // namespace zt
