// zt.ckpt for Lua. What scripts call is in lua/zt/ckpt/, on top of what is here.
#include <ATen/ops/empty.h>

#include "loader.h"
#include "posix_fs.h"
#include "saver.h"
#include "tensor_reader.h"
#include "verify.h"
#include "zt/lua/state.h"
#include "zt/mesh.h"
#include "zt/options.h"
#include "zt/tensor.h"

namespace zt {
ZT_OBJECT(ckpt::Saver)
ZT_DEFINE_OBJECT(ckpt::Saver, "Saver")
}  // namespace zt

namespace zt::ckpt {

namespace {

Ranks ranks_of(const std::shared_ptr<Mesh>& mesh) {
  return mesh ? Ranks(mesh->world()->communicator) : Ranks();
}

// {{prefix, object or value}, ...}
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

struct SaverOptions {
  std::string folder;
  std::shared_ptr<Mesh> mesh;
};
const auto kSaver = Schema<SaverOptions>("ckpt.saver")
                        .required("folder", &SaverOptions::folder, "where the checkpoints are")
                        .optional("mesh", &SaverOptions::mesh, "the ranks that save together");

int make_saver(lua_State* L) {
  const SaverOptions options = kSaver.parse(lua::check_value(L, 1));
  const auto saver = std::make_shared<Saver>(std::make_shared<PosixFs>(lua::world(L)), ranks_of(options.mesh), options.folder);
  // A script may end, or forget to wait, while a save is under way.
  at_shutdown([pending = std::weak_ptr(saver)] {
    if (const auto alive = pending.lock()) alive->wait();
  });
  lua::push(L, saver);
  return 1;
}

struct LuaSaveOptions {
  bool is_async = true, skip = false;
  int64_t keep = 0, keep_every = 0;
};
const auto kSave =
    Schema<LuaSaveOptions>("ckpt.save")
        .optional("async", &LuaSaveOptions::is_async, "go on when the tensors are copied, and write in the background")
        .optional("skip_if_busy", &LuaSaveOptions::skip, "leave this save out while the last one is written, instead of waiting")
        .optional("keep", &LuaSaveOptions::keep, "how many of the newest stay; 0: all", at_least(0))
        .optional("keep_every", &LuaSaveOptions::keep_every, "those of steps that are multiples of it stay besides", at_least(0));

// saver:save(step, objects, attributes, options) -> whether it was saved
int saver_save(lua_State* L) {
  const LuaSaveOptions given = kSave.parse(lua::is_absent(L, 5) ? Value() : lua::check_value(L, 5));
  SaveOptions options;
  options.mode = given.is_async ? Mode::async : Mode::blocking;
  options.when_busy = given.skip ? WhenBusy::skip : WhenBusy::wait;
  options.retention = {given.keep, given.keep_every};
  std::map<std::string, Value> attributes;
  const Value table = lua::check_value(L, 4);
  if (const auto* named = table.get_if<Value::Table>()) attributes = *named;
  const auto saver = lua::check<Saver>(L, 1);
  lua::push(L, saver->save(lua::check_integer(L, 2), check_objects(L, 3), attributes, options));
  return 1;
}

int saver_wait(lua_State* L) {
  lua::check<Saver>(L, 1)->wait();
  return 0;
}

// --- loading ---

// load(folder, mesh or nil, objects, {strict, only, map = {{old, new}, ...}}) -> values by name
int load_objects(lua_State* L) {
  PosixFs files(lua::world(L));
  const auto mesh = lua::is_absent(L, 2) ? nullptr : lua::check<Mesh>(L, 2);
  const Value given = lua::check_value(L, 4);
  MatchOptions options;
  const auto& table = *given.get_if<Value::Table>();
  convert(table.at("strict"), "ckpt.load.strict", options.strict);
  if (table.contains("only")) convert(table.at("only"), "ckpt.load.only", options.only);
  if (table.contains("map")) {
    for (const auto& [from, to] : *table.at("map").get_if<Value::Table>()) options.map.emplace_back(from, *to.get_if<std::string>());
  }
  lua::push(L, Value(load(files, ranks_of(mesh), lua::check_string(L, 1), check_objects(L, 3), options)));
  return 1;
}

// is_stop_requested(mesh or nil): whether any rank was told to stop. Collective.
int stop_requested(lua_State* L) {
  std::vector<uint8_t> flag{static_cast<uint8_t>(is_stop_requested())};
  ranks_of(lua::is_absent(L, 1) ? nullptr : lua::check<Mesh>(L, 1)).max(flag);
  lua::push(L, flag[0] != 0);
  return 1;
}

// --- folders of checkpoints ---

int list_checkpoints(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List list;
  for (const auto& [step, name] : complete(files, lua::check_string(L, 1))) list.push_back(Value::Table{{"step", step}, {"name", name}});
  lua::push(L, Value(std::move(list)));
  return 1;
}

int latest_checkpoint(lua_State* L) {
  PosixFs files(lua::world(L));
  const auto found = latest(files, lua::check_string(L, 1));
  lua::push(L, found ? Value(*found) : Value());
  return 1;
}

int remove_garbage(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List removed;
  for (auto& name : collect_garbage(files, lua::check_string(L, 1))) removed.emplace_back(std::move(name));
  lua::push(L, Value(std::move(removed)));
  return 1;
}

// Folders that are no complete checkpoints, in the order of their names.
int list_partial(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List names;
  for (auto& name : partial(files, lua::check_string(L, 1))) names.emplace_back(std::move(name));
  lua::push(L, Value(std::move(names)));
  return 1;
}

int list_folders(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List names;
  for (auto& name : folders_in(files, lua::check_string(L, 1))) names.emplace_back(std::move(name));
  lua::push(L, Value(std::move(names)));
  return 1;
}

int folder_size(lua_State* L) {
  PosixFs files(lua::world(L));
  lua::push(L, folder_bytes(files, lua::check_string(L, 1)));
  return 1;
}

// --- one checkpoint ---

// describe(folder) -> {tensors = {{name, dtype, shape, bytes, pieces, attributes}, ...}, values = {name = value}}
int describe_checkpoint(lua_State* L) {
  PosixFs files(lua::world(L));
  const Index index = read_index(files, lua::check_string(L, 1));
  Value::List tensors;
  for (const SavedTensor& tensor : index.tensors) {
    const int64_t numel = c10::multiply_integers(tensor.shape);
    tensors.push_back(Value::Table{{"name", tensor.name},
                                   {"dtype", dtype_name(tensor.dtype)},
                                   {"shape", Value::List(tensor.shape.begin(), tensor.shape.end())},
                                   {"bytes", numel * static_cast<int64_t>(c10::elementSize(tensor.dtype))},
                                   {"pieces", static_cast<int64_t>(tensor.pieces.size())},
                                   {"attributes", tensor.attributes}});
  }
  lua::push(L, Value(Value::Table{{"tensors", std::move(tensors)}, {"values", values_of(index)}}));
  return 1;
}

// read(folder, name) -> the whole tensor
int read_tensor(lua_State* L) {
  PosixFs files(lua::world(L));
  const std::string folder = lua::check_string(L, 1), name = lua::check_string(L, 2);
  const Index index = read_index(files, folder);
  for (const SavedTensor& tensor : index.tensors) {
    if (tensor.name != name) continue;
    const at::Tensor whole = at::empty(tensor.shape, tensor.dtype);
    read_tensors(files, folder, index, {{&tensor, whole_region(tensor.shape), whole.view({-1})}});
    lua::push(L, whole);
    return 1;
  }
  std::vector<std::string> names;
  for (const SavedTensor& tensor : index.tensors) names.push_back(tensor.name);
  misuse("the checkpoint '{}' has no tensor '{}'{}", folder, name, suggest(name, names));
}

int verify_checkpoint(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List wrong;
  for (auto& line : verify(files, lua::check_string(L, 1))) wrong.emplace_back(std::move(line));
  lua::push(L, Value(std::move(wrong)));
  return 1;
}

}  // namespace

void open(lua::Module& module) {
  module.function<make_saver>("saver")
      .function<load_objects>("load_objects")
      .function<stop_requested>("is_stop_requested")
      .function<list_checkpoints>("list")
      .function<latest_checkpoint>("latest")
      .function<list_partial>("partial")
      .function<list_folders>("folders")
      .function<folder_size>("folder_bytes")
      .function<remove_garbage>("gc")
      .function<describe_checkpoint>("describe")
      .function<read_tensor>("read")
      .function<verify_checkpoint>("verify");
  module.type<Saver>().method<saver_save>("save").method<saver_wait>("wait");
}

}  // namespace zt::ckpt

ZT_LUA_MODULE(ckpt) {
  zt::ckpt::open(module);
}
