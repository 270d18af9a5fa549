// What a rank prints: whole lines, marked with the rank.
#pragma once

#include <cstdio>
#include <lua.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "zt/process/world.h"

namespace zt::host {

// Collects text and writes it line by line, each line with the prefix and in one piece: the lines of ranks that are threads
// of one process do not mix. Used by one thread.
class LineStream {
 public:
  LineStream(FILE* file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  void write(std::string_view text);
  void finish();  // writes an unfinished last line

 private:
  FILE* file_;
  std::string prefix_;
  std::string pending_;
};

// Replaces print, io.write and the write method of io.stdout and io.stderr in one Lua state, where the ranks' lines need
// marking: on every rank but 0 ("[1] text"), and on all where ranks share one process. Lives longer than the state.
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
