#include "zt/process/log.h"

#include <atomic>
#include <cstdio>

#include "zt/base/machine.h"
#include "zt/base/words.h"

namespace zt {

namespace {

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> level = [] {
    const char* name = environment("ZT_LOG");
    return name ? parse_word<LogLevel>(name, "ZT_LOG: unknown level") : LogLevel::info;
  }();
  return level;
}

}  // namespace

LogLevel parse_log_level(const std::string& name) {
  return parse_word<LogLevel>(name, "zt.log: unknown level");
}

const char* name_of(LogLevel level) {
  return words_of(level)[static_cast<size_t>(level)];
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
