// Prints a rank's output as whole lines, marked with the rank.
#pragma once

#include <cstdio>
#include <lua.hpp>
#include <string>
#include <string_view>

#include "zt/process/world.h"

namespace zt::host {

// Buffers text and writes only whole lines, each after the prefix. Lines of ranks that are threads of one process do not mix.
// Not thread-safe: each rank has its own.
class LineStream {
 public:
  LineStream(FILE* file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  void write(std::string_view text);
  void finish();  // ends and writes an unfinished last line, and flushes the file

 private:
  FILE* file_;
  std::string prefix_;
  std::string pending_;
};

// Replaces print, io.write and the write method of io.stdout and io.stderr in one Lua state. Lines of all ranks but 0 are marked:
// "[1] text". Rank 0 keeps Lua's own functions unless ranks are threads of one process. Must outlive the Lua state.
class RankOutput {
 public:
  explicit RankOutput(const World& world);
  void install(lua_State* L);
  void finish();

 private:
  static int print(lua_State* L);
  static int write_to_default(lua_State* L);
  static int write_to_file(lua_State* L);

  bool is_marked_;
  LineStream out_, err_;
};

}  // namespace zt::host
