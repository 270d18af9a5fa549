#include "output.h"

#include <fmt/format.h>

#include "zt/base/error.h"
#include "zt/lua/state.h"

namespace zt::host {

void LineStream::write(std::string_view text) {
  const size_t end = text.rfind('\n');
  if (end == std::string_view::npos) {
    pending_ += text;
    return;
  }
  std::string lines = prefix_ + pending_;
  pending_ = text.substr(end + 1);
  text = text.substr(0, end + 1);
  while (!text.empty()) {
    const size_t line = text.find('\n') + 1;
    lines += text.substr(0, line);
    text = text.substr(line);
    if (!text.empty()) lines += prefix_;
  }
  std::fwrite(lines.data(), 1, lines.size(), file_);
  // For a stream that writes each line at once, fwrite returns no error. Errors of standard error are ignored: no other place
  // could show them.
  if (file_ == stdout && std::ferror(file_) != 0) fault("cannot write the output: is the disk full?");
}

void LineStream::finish() {
  if (!pending_.empty()) write("\n");
  std::fflush(file_);
}

RankOutput::RankOutput(const World& world)
    : is_marked_(world.rank != 0 || world.launch == Launch::threads),
      out_(stdout, world.rank == 0 ? "" : fmt::format("[{}] ", world.rank)),
      err_(stderr, world.rank == 0 ? "" : fmt::format("[{}] ", world.rank)) {}

void RankOutput::finish() {
  out_.finish();
  err_.finish();
}

// Upvalue 1: the RankOutput.
int RankOutput::print(lua_State* L) {
  auto* self = static_cast<RankOutput*>(lua_touserdata(L, lua_upvalueindex(1)));
  const int count = lua_gettop(L);
  std::string line;
  for (int i = 1; i <= count; ++i) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    if (!lua_isstring(L, -1)) misuse("print: tostring returned a {} for argument {}, not a string", luaL_typename(L, -1), i);
    if (i > 1) line += '\t';
    line += lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  self->out_.write(line + '\n');
  return 0;
}

// Upvalue 1: io.output. Calls the method `write` of the default output file.
int RankOutput::write_to_default(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_call(L, 0, 1);
  lua_getfield(L, -1, "write");
  lua_insert(L, 1);
  lua_insert(L, 2);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

// Upvalues: the RankOutput, Lua's own method write, io.stdout, io.stderr. Argument 1: the file.
int RankOutput::write_to_file(lua_State* L) {
  auto* self = static_cast<RankOutput*>(lua_touserdata(L, lua_upvalueindex(1)));
  const bool is_out = lua_rawequal(L, 1, lua_upvalueindex(3));
  const bool is_err = lua_rawequal(L, 1, lua_upvalueindex(4));
  if (!is_out && !is_err) {
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
  }
  std::string text;
  for (int i = 2; i <= lua_gettop(L); ++i) {
    size_t size = 0;
    const char* piece = luaL_checklstring(L, i, &size);
    text.append(piece, size);
  }
  (is_out ? self->out_ : self->err_).write(text);
  lua_settop(L, 1);
  return 1;
}

void RankOutput::install(lua_State* L) {
  if (!is_marked_) return;
  lua_pushlightuserdata(L, this);
  lua_pushcclosure(L, lua::guarded<print>, 1);
  lua_setglobal(L, "print");

  lua_getglobal(L, "io");
  const int io = lua_gettop(L);
  lua_getfield(L, io, "output");
  lua_pushcclosure(L, lua::guarded<write_to_default>, 1);
  lua_setfield(L, io, "write");

  lua_getfield(L, io, "stdout");
  lua_getmetatable(L, -1);
  lua_getfield(L, -1, "__index");
  lua_pushlightuserdata(L, this);
  lua_getfield(L, -2, "write");
  lua_getfield(L, io, "stdout");
  lua_getfield(L, io, "stderr");
  lua_pushcclosure(L, lua::guarded<write_to_file>, 4);
  lua_setfield(L, -2, "write");
  lua_settop(L, io - 1);
}

}  // namespace zt::host
