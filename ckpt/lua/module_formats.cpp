// The binding of zt.ckpt for ckpt import and export: reads and writes safetensors files, and writes imported checkpoints.
#include <mutex>

#include "load/matching.h"
#include "module.h"
#include "safetensors/safetensors_files.h"
#include "save/folder_writer.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/io/posix_fs.h"
#include "zt/lua/state.h"
#include "zt/process/emergency.h"

namespace zt {
namespace ckpt {

// The safetensors files of a model, for reading.
struct SafetensorsModel {
  io::PosixFs files;
  safetensors::ModelFiles model;

  SafetensorsModel(const World& world, const std::string& path) : files(world), model(files, path) {}
};

// A checkpoint that is written tensor by tensor.
struct Import {
  io::PosixFs files;
  FolderWriter writer;
  std::mutex finishing;  // held during finish(); after a signal has abandoned the checkpoint, held forever

  Import(const World& world, const std::string& root, int64_t step) : files(world), writer(files, root, step) {}
};

}  // namespace ckpt

ZT_OBJECT(ckpt::SafetensorsModel)
ZT_DEFINE_OBJECT(ckpt::SafetensorsModel, "Safetensors")
ZT_OBJECT(ckpt::Import)
ZT_DEFINE_OBJECT(ckpt::Import, "Import")
}  // namespace zt

namespace zt::ckpt {

namespace {

// renamed({name, ...}, {regular expression = replacement}) -> {new name, ...}
int rename_all(lua_State* L) {
  std::vector<std::string> names;
  convert(lua::check_value(L, 1), "renamed: names", names);
  const auto found = renamed(std::move(names), map_of(lua::check_value(L, 2), "map"));
  lua::push(L, Value(Value::List(found.begin(), found.end())));
  return 1;
}

// safetensors(path) -> Safetensors
int open_safetensors(lua_State* L) {
  lua::push(L, std::make_shared<SafetensorsModel>(lua::world(L), check_path(L, 1)));
  return 1;
}

// tensors() -> {{name, dtype, shape}, ...}
int list_safetensors(lua_State* L) {
  Value::List list;
  for (const auto& [name, tensor] : lua::check<SafetensorsModel>(L, 1)->model.tensors()) {
    list.emplace_back(description(name, tensor.dtype, tensor.shape));
  }
  lua::push(L, Value(std::move(list)));
  return 1;
}

int read_safetensors(lua_State* L) {
  lua::push(L, lua::check<SafetensorsModel>(L, 1)->model.read(lua::check_string(L, 2)));
  return 1;
}

std::vector<safetensors::Tensor> check_tensor_list(lua_State* L, int index) {
  std::vector<safetensors::Tensor> tensors;
  const Value list = lua::check_value(L, index);
  for (const Value& entry : list.get_if<Value::List>() ? *list.get_if<Value::List>() : Value::List()) {
    const auto& fields = *entry.get_if<Value::Table>();
    safetensors::Tensor& tensor = tensors.emplace_back();
    convert(fields.at("name"), "write_safetensors: name", tensor.name);
    convert(fields.at("shape"), "write_safetensors: shape", tensor.shape);
    tensor.dtype = parse_dtype(*fields.at("dtype").get_if<std::string>());
  }
  return tensors;
}

// write_safetensors(path, {{name, dtype, shape}, ...}, most bytes per file, function(name) return tensor end, mesh or nil,
// overwrite) -> paths written. Collective: rank 0 writes. The function may be collective: every rank calls it for every tensor in
// the same order, also after an error.
int write_safetensors(lua_State* L) {
  io::PosixFs files(lua::world(L));
  const std::string path = check_path(L, 1);
  const auto tensors = check_tensor_list(L, 2);
  const int64_t most = lua::check_integer(L, 3);
  lua::Callable function(L, 4);
  const Ranks ranks = ranks_of(L, 5);
  const bool is_replaced = !lua::is_absent(L, 6) && lua::check_boolean(L, 6);
  const auto existing = is_replaced ? safetensors::Existing::replace : safetensors::Existing::refuse;
  size_t asked = 0;
  const auto provide = [&](const std::string& name) {
    ++asked;
    lua_State* state = function.begin();
    lua::push(state, name);
    function.call(1, 1);
    const at::Tensor values = lua::check_tensor(state, -1);
    lua_pop(state, 1);
    return values;
  };
  std::vector<std::string> written;
  ranks.together([&] {
    const auto rest = [&] {
      const auto order = safetensors::write_order(path, tensors, most);
      while (asked < order.size()) provide(order[asked]);
    };
    try {
      if (ranks.rank() == 0) written = safetensors::write_model(files, path, tensors, most, provide, existing);
    } catch (const std::exception&) {
      rest();
      throw;
    }
    rest();
  });
  lua::push(L, Value(Value::List(written.begin(), written.end())));
  return 1;
}

// Removes the partial folder if a signal ends the process, for example at Ctrl-C. The process ends right after that.
void abandon_when_told_to_end(const std::shared_ptr<Import>& import) {
  at_emergency([weak = std::weak_ptr<Import>(import)](const Emergency& emergency) {
    const auto held = weak.lock();
    if (emergency.kind != Emergency::Kind::told_to_end || !held || !held->finishing.try_lock()) return;
    held->writer.abandon();
  });
}

// import(folder of checkpoints, step) -> Import
int begin_import(lua_State* L) {
  const auto import = std::make_shared<Import>(lua::world(L), check_path(L, 1), lua::check_integer(L, 2));
  abandon_when_told_to_end(import);
  lua::push(L, import);
  return 1;
}

int add_to_import(lua_State* L) {
  lua::check<Import>(L, 1)->writer.add(lua::check_string(L, 2), lua::check_tensor(L, 3));
  return 0;
}

// finish({name = value}) -> the checkpoint's folder
int finish_import(lua_State* L) {
  const Value values = lua::check_value(L, 2);
  const auto* table = values.get_if<Value::Table>();
  const auto import = lua::check<Import>(L, 1);
  const std::lock_guard lock(import->finishing);
  lua::push(L, import->writer.finish(table ? *table : Value::Table()));
  return 1;
}

}  // namespace

void open_formats(lua::Module& module) {
  module.function<rename_all>("renamed")
      .function<open_safetensors>("safetensors")
      .function<write_safetensors>("write_safetensors")
      .function<begin_import>("import");
  module.type<SafetensorsModel>().method<list_safetensors>("tensors").method<read_safetensors>("read");
  module.type<Import>()
      .method<add_to_import>("add")
      .method<finish_import>("finish")
      .method<[](Import& import) { import.writer.abandon(); }>("abandon");
}

}  // namespace zt::ckpt
