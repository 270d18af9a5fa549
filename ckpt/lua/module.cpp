// The binding of zt.ckpt: saving, loading and the run's lock. The Lua files beside it build the public calls on it.
#include "module.h"

#include "folder/run_lock.h"
#include "folder/store.h"
#include "load/loader.h"
#include "save/saver.h"
#include "zt/base/options.h"
#include "zt/comm/mesh.h"
#include "zt/io/hash.h"
#include "zt/io/posix_fs.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"

namespace zt {
ZT_OBJECT(ckpt::Saver)
ZT_DEFINE_OBJECT(ckpt::Saver, "Saver")
ZT_OBJECT(ckpt::RunLock)
ZT_DEFINE_OBJECT(ckpt::RunLock, "RunLock")
}  // namespace zt

namespace zt::ckpt {

Ranks ranks_of(lua_State* L, int index) {
  return lua::is_absent(L, index) ? Ranks() : Ranks(lua::check<Mesh>(L, index)->world()->control);
}

std::string check_path(lua_State* L, int index) {
  std::string path = lua::check_string(L, index);
  const size_t nul = path.find('\0');
  if (nul != std::string::npos) {
    misuse("the path '{}' has a NUL character after these {} bytes, which the system takes for its end: give a path without one",
           path.substr(0, nul), nul);
  }
  return path;
}

std::vector<std::pair<std::string, std::string>> map_of(const Value& value, const char* what) {
  std::vector<std::pair<std::string, std::string>> map;
  Value::Table table;
  convert(value, what, table);
  for (const auto& [from, to] : table) convert(to, what, map.emplace_back(from, "").second);
  return map;
}

namespace {

// Returns the list {{prefix, object or value}, ...} in argument `index`.
Objects check_objects(lua_State* L, int index) {
  Objects objects;
  const Value value = lua::check_value(L, index);
  if (const auto* list = value.get_if<Value::List>()) {
    for (const Value& entry : *list) {
      const auto& pair = *entry.get_if<Value::List>();
      objects.emplace_back(*pair.at(0).get_if<std::string>(), pair.at(1));
    }
  }
  return objects;
}

// --- saving ---

// saver(mesh or nil) -> Saver
int make_saver(lua_State* L) {
  const auto saver = std::make_shared<Saver>(std::make_shared<io::PosixFs>(lua::world(L)), ranks_of(L, 1));
  lua::at_script_end(L, [saver] { saver->wait(); });  // a script may end while a save is under way
  lua::push(L, saver);
  return 1;
}

// saver:save(folder, step, objects, async, skip_if_busy, keep, keep_every) -> true, or false if skipped. save.lua has their
// schema.
int saver_save(lua_State* L) {
  const SaveOptions options{.mode = lua::check_boolean(L, 5) ? SaveMode::async : SaveMode::blocking,
                            .when_busy = lua::check_boolean(L, 6) ? WhenBusy::skip : WhenBusy::wait,
                            .retention = {.keep = lua::check_integer(L, 7), .keep_every = lua::check_integer(L, 8)}};
  const auto& [keep, keep_every] = options.retention;
  if (keep < 0 || keep_every < 0) misuse("Saver:save: keep and keep_every must be at least 0, got {} and {}", keep, keep_every);
  const auto saver = lua::check<Saver>(L, 1);
  lua::push(L, saver->save(check_path(L, 2), lua::check_integer(L, 3), check_objects(L, 4), options));
  return 1;
}

// --- a run's folder ---

// lock_run(folder) -> RunLock, held until its release, or until the script and its last save have ended
int lock_run(lua_State* L) {
  const auto lock = std::make_shared<RunLock>(check_path(L, 1));
  lua::at_script_end(L, [lock] {});  // keeps the lock: all such actions end before one of them is destroyed
  lua::push(L, lock);
  return 1;
}

// run_holder(folder) -> {host, pid, is_alive, silent}, or nil if no process holds the folder
int run_holder(lua_State* L) {
  const auto holder = ckpt::run_holder(check_path(L, 1));
  if (!holder) return 0;
  lua::push(L, Value(Value::Table{
                   {"host", holder->host}, {"pid", holder->pid}, {"is_alive", holder->is_alive}, {"silent", holder->silent}}));
  return 1;
}

// --- loading ---

// load_objects(folder, mesh or nil, objects, {strict, only, map = {[regular expression] = replacement}, upcycle}) -> values by
// name
int load_objects(lua_State* L) {
  io::PosixFs files(lua::world(L));
  const Value given = lua::check_value(L, 4);
  MatchOptions options;
  Value::Table table;
  convert(given, "ckpt.load", table);
  convert(table.at("strict"), "ckpt.load.strict", options.strict);
  if (table.contains("upcycle")) convert(table.at("upcycle"), "ckpt.load.upcycle", options.upcycle);
  if (table.contains("only")) convert(table.at("only"), "ckpt.load.only", options.only);
  if (table.contains("map")) options.map = map_of(table.at("map"), "ckpt.load.map");
  lua::push(L, Value(load(files, ranks_of(L, 2), check_path(L, 1), check_objects(L, 3), options)));
  return 1;
}

// find(path, mesh or nil) -> the folder of the checkpoint that `path` means, or nil. Collective; rank 0 reads the folder.
int find(lua_State* L) {
  io::PosixFs files(lua::world(L));
  const std::string path = check_path(L, 1);
  const Ranks ranks = ranks_of(L, 2);
  std::string found;
  ranks.on_rank_zero([&] { found = find_checkpoint(files, path).value_or(""); });
  found = ranks.broadcast(found);
  lua::push(L, found.empty() ? Value() : Value(found));
  return 1;
}

// is_stop_requested(mesh or nil) -> true if a signal told any rank to stop. Collective.
int stop_requested(lua_State* L) {
  lua::push(L, ranks_of(L, 1).any(is_stop_requested()));
  return 1;
}

// digest(text or tensor) -> 16 hexadecimal digits, of the bytes
int digest(lua_State* L) {
  const Value value = lua::check_value(L, 1);
  if (const auto* tensor = value.get_if<at::Tensor>()) {
    const at::Tensor values = tensor->cpu().contiguous();
    lua::push(L, fmt::format("{:016x}", io::xxh3({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()})));
    return 1;
  }
  const std::string text = lua::check_string(L, 1);
  lua::push(L, fmt::format("{:016x}", io::xxh3(std::as_bytes(std::span(text)))));
  return 1;
}

}  // namespace

void open(lua::Module& module) {
  module.from_lua("save", "zt.ckpt.save").from_lua("load", "zt.ckpt.load").from_lua("resume", "zt.ckpt.resume");
  module.from_lua("save_safetensors", "zt.ckpt.save_safetensors").from_lua("pretrained", "zt.ckpt.pretrained.pretrained");
  module.from_lua("lora_options", "zt.ckpt.adapters.lora_options").from_lua("load_adapter", "zt.ckpt.adapters.load_adapter");
  module.from_lua("save_adapter", "zt.ckpt.adapters.save_adapter").from_lua("merge_lora", "zt.ckpt.adapters.merge_lora");
  module.function<make_saver>("saver")
      .function<load_objects>("load_objects")
      .function<find>("find")
      .function<stop_requested>("is_stop_requested")
      .function<digest>("digest");
  module.type<Saver>().method<saver_save>("save").method<&Saver::wait>("wait");
  module.function<run_holder>("run_holder");
  module.function<lock_run>("lock_run").type<RunLock>().method<&RunLock::release>("release").method<&RunLock::check>("check");
  open_tools(module);
  open_formats(module);
}

}  // namespace zt::ckpt

ZT_LUA_MODULE(ckpt) {
  zt::ckpt::open(module);
}
