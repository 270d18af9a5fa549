#include "loader.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string_view>

#include "zt/lua/state.h"

namespace zt::host {

namespace {

namespace fs = std::filesystem;

std::string field(lua_State* L, const char* name) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, name);
  const std::string value = lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
  lua_pop(L, 2);
  return value;
}

// Returns the path of the module `name` ("zt.comm") for one template of a search path ("/usr/lib/?.so").
std::string fill(std::string_view pattern, const std::string& name) {
  std::string place = name;
  for (char& c : place) {
    if (c == '.') c = '/';
  }
  std::string out;
  for (const char c : pattern) c == '?' ? out += place : out += c;
  return out;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

// Returns the text of `message` between `begin` and `end`; empty if `begin` does not occur.
std::string between(const std::string& message, std::string_view begin, std::string_view end) {
  const size_t at = message.find(begin);
  if (at == std::string::npos) return "";
  const size_t from = at + begin.size();
  return message.substr(from, message.find(end, from) - from);
}

// Returns glibc's message of a failed dlopen, rewritten to say what to do.
std::string explain(const std::string& message) {
  const std::string symbol = between(message, "undefined symbol: ", ",");
  if (!symbol.empty()) {
    return fmt::format(
        "it needs '{}', which no library that it links to provides: was it built against another version of ztoolkit or "
        "LibTorch? Build it again with the CMake package of this ztoolkit",
        demangled(symbol));
  }
  if (message.find("cannot open shared object file") != std::string::npos) {
    return fmt::format("the library {} that it links to is missing: install it, or add its folder to LD_LIBRARY_PATH",
                       message.substr(0, message.find(':')));
  }
  return message;
}

// Loads a module and returns its luaopen function. A module is never unloaded: its objects may outlive the Lua state.
lua_CFunction open_file(const std::string& name, const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fault("cannot load the module '{}' from {}: {}", name, path, explain(dlerror()));
  std::string symbol = "luaopen_" + name;
  for (char& c : symbol) {
    if (c == '.') c = '_';
  }
  void* function = dlsym(library, symbol.c_str());
  if (!function) {
    fault("cannot load the module '{}' from {}: the file has no function {}: does its source say ZT_LUA_MODULE({})?", name, path,
          symbol, name.substr(name.rfind('.') + 1));
  }
  return reinterpret_cast<lua_CFunction>(function);
}

// Opens a module: upvalue 1 is its luaopen function, argument 1 its name. Adds the module's name to an error.
int open_named(lua_State* L) {
  const std::string name = lua::check_string(L, 1);
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  if (lua_pcall(L, 1, 1, 0) == 0) return 1;
  std::string_view why = lua_isstring(L, -1) ? lua_tostring(L, -1) : "it raised an error that is not a string";
  // Removes the script's file and line: the new error gets them again.
  for (int level = 1; level <= 3; ++level) {
    luaL_where(L, level);
    if (const std::string_view where = lua_tostring(L, -1); why.starts_with(where)) why.remove_prefix(where.size());
  }
  fault("cannot open the module '{}': {}", name, why);
}

// A searcher of package.loaders: pushes the module's opening function, or nothing if the module is not on the path.
int search(lua_State* L) {
  const std::string name = lua::check_string(L, 1);
  if (!name.starts_with("zt.")) return 0;
  for (const std::string& pattern : split(field(L, "cpath"))) {
    const std::string path = fill(pattern, name);
    if (fs::exists(path)) {
      lua_pushcfunction(L, open_file(name, path));
      lua_pushcclosure(L, lua::guarded<open_named>, 1);
      return 1;
    }
  }
  return 0;
}

// The last searcher, which is called if no other one finds the module. Its error replaces Lua's list of all searched files.
int refuse(lua_State* L) {
  const std::string name = lua::check_string(L, 1);
  std::vector<std::string> known;
  for (const ModuleFile& file : find_modules(L)) known.push_back(file.name);
  const std::string ours = name.starts_with("zt.") ? name : "zt." + name;
  if (ours == name || std::ranges::find(known, ours) != known.end())
    misuse("there is no module '{}'{}", name, suggest(ours, known));
  misuse("there is no module '{0}': no folder of package.path has {1}.lua, and none of package.cpath has {1}.so", name,
         fill("?", name));
}

// zt.host.modules(): returns a list of the names of the C modules on the path.
int module_names(lua_State* L) {
  const auto files = find_modules(L);
  lua_createtable(L, static_cast<int>(files.size()), 0);
  for (size_t i = 0; i < files.size(); ++i) {
    lua::push(L, files[i].name);
    lua_rawseti(L, -2, static_cast<int>(i + 1));
  }
  return 1;
}

Value to_value(const PlanRequest& plan) {
  return Value::Table{{"descriptor", plan.descriptor},
                      {"is_json", plan.is_json},
                      {"costs", plan.costs},
                      {"picture", plan.picture},
                      {"trace", plan.trace},
                      {"ranks_per_machine", plan.ranks_per_machine},
                      {"compared", Value::List(plan.compared.begin(), plan.compared.end())}};
}

// zt.host.plan(): returns the upvalue, the fields of PlanRequest under `ztoolkit plan`, else nil.
int plan_request(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  return 1;
}

// Opens `require "zt.host"`, for the Lua library. The upvalue is that of plan_request.
int open_host(lua_State* L) {
  lua_newtable(L);
  lua_pushcfunction(L, lua::guarded<module_names>);
  lua_setfield(L, -2, "modules");
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, plan_request, 1);
  lua_setfield(L, -2, "plan");
  return 1;
}

}  // namespace

std::vector<ModuleFile> find_modules(lua_State* L) {
  std::map<std::string, std::string> found;
  for (const std::string& pattern : split(field(L, "cpath"))) {
    if (!pattern.ends_with("?.so")) continue;
    const fs::path folder = fill(pattern.substr(0, pattern.size() - 4), "") + "zt";
    std::error_code no_such_folder;
    for (const auto& entry : fs::directory_iterator(folder, no_such_folder)) {
      if (entry.path().extension() == ".so") found.emplace("zt." + entry.path().stem().string(), entry.path());
    }
  }
  std::vector<ModuleFile> files;
  for (const auto& [name, path] : found) files.push_back({name, path});
  return files;
}

void install_loader(lua_State* L, const std::optional<PlanRequest>& plan) {
  // package.loaders = {preload, Lua files, C modules, all-in-one C modules}: `search` goes before the third, `refuse` to the end.
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "loaders");
  const int count = static_cast<int>(lua_objlen(L, -1));
  for (int i = count; i >= 3; --i) {
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushcfunction(L, lua::guarded<search>);
  lua_rawseti(L, -2, 3);
  lua_pushcfunction(L, lua::guarded<refuse>);
  lua_rawseti(L, -2, count + 2);
  lua_pop(L, 1);

  lua_getfield(L, -1, "preload");
  lua::push(L, plan ? to_value(*plan) : Value());
  lua_pushcclosure(L, open_host, 1);
  lua_setfield(L, -2, "zt.host");
  lua_pop(L, 2);
}

}  // namespace zt::host
