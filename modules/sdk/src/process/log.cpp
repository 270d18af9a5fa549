#include "zt/process/log.h"

#include <array>
#include <atomic>
#include <cstdio>

#include "zt/base/error.h"
#include "zt/base/machine.h"

namespace zt {

namespace {

const std::array<std::string, 5> kNames{"debug", "info", "warn", "error", "off"};

LogLevel parse(const std::string& name, const char* where) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  misuse("{}: unknown level '{}'{}", where, name, suggest(name, kNames));
}

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> level = [] {
    const char* name = environment("ZT_LOG");
    return name ? parse(name, "ZT_LOG") : LogLevel::info;
  }();
  return level;
}

}  // namespace

LogLevel parse_log_level(const std::string& name) {
  return parse(name, "zt.log");
}

const char* name_of(LogLevel level) {
  return kNames[static_cast<size_t>(level)].c_str();
}

LogLevel set_log_level(LogLevel wanted) {
  return level().exchange(wanted);
}

void log(LogLevel of_message, const World& world, const std::string& text) {
  const LogLevel shown = level();
  if (of_message < shown) return;
  if (of_message < LogLevel::warn && shown > LogLevel::debug && world.rank != 0) return;
  const std::string place = world.size > 1 ? fmt::format(" rank {}", world.rank) : "";
  fmt::print(stderr, "[{}{}] {}\n", name_of(of_message), place, text);
}

}  // namespace zt
