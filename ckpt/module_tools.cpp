// zt.ckpt for the tools: folders of checkpoints, single ones, and other formats.
#include <ATen/ops/empty.h>

#include <algorithm>

#include "folder_writer.h"
#include "loader.h"
#include "module.h"
#include "posix_fs.h"
#include "safetensors_files.h"
#include "store.h"
#include "tensor_reader.h"
#include "verify.h"
#include "zt/lua/state.h"
#include "zt/options.h"
#include "zt/tensor.h"

namespace zt {
namespace ckpt {

// A checkpoint to read from: what its master file says is read once.
struct Checkpoint {
  PosixFs files;
  std::string folder;
  Index index;

  Checkpoint(const World& world, std::string path) : files(world), folder(std::move(path)), index(read_index(files, folder)) {}
};

// Safetensors files to read from.
struct Foreign {
  PosixFs files;
  safetensors::Model model;

  Foreign(const World& world, const std::string& path) : files(world), model(files, path) {}
};

// A checkpoint being written, tensor by tensor.
struct Import {
  PosixFs files;
  FolderWriter writer;

  Import(const World& world, const std::string& root, int64_t step) : files(world), writer(files, root, step) {}
};

}  // namespace ckpt

ZT_OBJECT(ckpt::Checkpoint)
ZT_DEFINE_OBJECT(ckpt::Checkpoint, "Checkpoint")
ZT_OBJECT(ckpt::Foreign)
ZT_DEFINE_OBJECT(ckpt::Foreign, "Safetensors")
ZT_OBJECT(ckpt::Import)
ZT_DEFINE_OBJECT(ckpt::Import, "Import")
}  // namespace zt

namespace zt::ckpt {

namespace {

// --- folders of checkpoints ---

int list_checkpoints(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List list;
  for (const auto& [step, name] : complete(files, lua::check_string(L, 1))) {
    Value::Table entry;
    entry["step"] = step;
    entry["name"] = name;
    list.emplace_back(std::move(entry));
  }
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

int remove_checkpoints(lua_State* L) {
  PosixFs files(lua::world(L));
  remove_all(files, lua::check_string(L, 1));
  return 0;
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

Value::Table description(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& shape) {
  Value::Table table;
  table["name"] = name;
  table["dtype"] = dtype_name(dtype);
  table["shape"] = Value::List(shape.begin(), shape.end());
  return table;
}

// describe() -> {tensors = {{name, dtype, shape, bytes, pieces, attributes}, ...}, values = {name = value}}
int describe(lua_State* L) {
  const Index& index = lua::check<Checkpoint>(L, 1)->index;
  Value::List tensors;
  for (const SavedTensor& tensor : index.tensors) {
    Value::Table entry = description(tensor.name, tensor.dtype, tensor.shape);
    entry["bytes"] = c10::multiply_integers(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    entry["pieces"] = static_cast<int64_t>(tensor.pieces.size());
    entry["attributes"] = tensor.attributes;
    tensors.emplace_back(std::move(entry));
  }
  Value::Table table;
  table["tensors"] = std::move(tensors);
  table["values"] = values_of(index);
  lua::push(L, Value(std::move(table)));
  return 1;
}

// read(name) -> the whole tensor
int read_tensor(lua_State* L) {
  const auto checkpoint = lua::check<Checkpoint>(L, 1);
  const std::string name = lua::check_string(L, 2);
  const auto found = std::ranges::find(checkpoint->index.tensors, name, &SavedTensor::name);
  if (found == checkpoint->index.tensors.end()) {
    std::vector<std::string> names;
    for (const SavedTensor& tensor : checkpoint->index.tensors) names.push_back(tensor.name);
    misuse("the checkpoint '{}' has no tensor '{}'{}", checkpoint->folder, name, suggest(name, names));
  }
  const at::Tensor whole = at::empty(found->shape, found->dtype);
  read_tensors(checkpoint->files, checkpoint->folder, checkpoint->index,
               {{&*found, whole_region(found->shape), whole.view({-1})}});
  lua::push(L, whole);
  return 1;
}

// open(folder) -> Checkpoint
int open_checkpoint(lua_State* L) {
  lua::push(L, std::make_shared<Checkpoint>(lua::world(L), lua::check_string(L, 1)));
  return 1;
}

int verify_checkpoint(lua_State* L) {
  PosixFs files(lua::world(L));
  Value::List wrong;
  for (auto& line : verify(files, lua::check_string(L, 1))) wrong.emplace_back(std::move(line));
  lua::push(L, Value(std::move(wrong)));
  return 1;
}

// --- other formats ---

// safetensors(path) -> Safetensors
int open_safetensors(lua_State* L) {
  lua::push(L, std::make_shared<Foreign>(lua::world(L), lua::check_string(L, 1)));
  return 1;
}

// tensors() -> {{name, dtype, shape}, ...}
int list_foreign(lua_State* L) {
  Value::List list;
  for (const auto& [name, tensor] : lua::check<Foreign>(L, 1)->model.tensors()) {
    list.emplace_back(description(name, tensor.dtype, tensor.shape));
  }
  lua::push(L, Value(std::move(list)));
  return 1;
}

int read_foreign(lua_State* L) {
  lua::push(L, lua::check<Foreign>(L, 1)->model.read(lua::check_string(L, 2)));
  return 1;
}

std::vector<safetensors::Tensor> check_announced(lua_State* L, int index) {
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

// write_safetensors(path, {{name, dtype, shape}, ...}, most bytes a file, function(name) return tensor end, mesh or nil) -> paths
// written. Collective: rank 0 writes, and every rank is asked for every tensor, in one order, also after an error.
int write_safetensors(lua_State* L) {
  PosixFs files(lua::world(L));
  const std::string path = lua::check_string(L, 1);
  const auto tensors = check_announced(L, 2);
  const int64_t most = lua::check_integer(L, 3);
  lua::Callable function(L, 4);
  const Ranks ranks = ranks_of(L, 5);
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
      if (ranks.rank() == 0) written = safetensors::write_model(files, path, tensors, most, provide);
    } catch (const Fault&) {
      rest();
      throw;
    }
    rest();
  });
  lua::push(L, Value(Value::List(written.begin(), written.end())));
  return 1;
}

// import(folder of checkpoints, step) -> Import
int begin_import(lua_State* L) {
  lua::push(L, std::make_shared<Import>(lua::world(L), lua::check_string(L, 1), lua::check_integer(L, 2)));
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
  lua::push(L, lua::check<Import>(L, 1)->writer.finish(table ? *table : Value::Table()));
  return 1;
}

}  // namespace

void open_tools(lua::Module& module) {
  module.function<list_checkpoints>("list")
      .function<latest_checkpoint>("latest")
      .function<list_partial>("partial")
      .function<list_folders>("folders")
      .function<folder_size>("folder_bytes")
      .function<remove_garbage>("gc")
      .function<remove_checkpoints>("remove_all")
      .function<open_checkpoint>("open")
      .function<verify_checkpoint>("verify")
      .function<open_safetensors>("safetensors")
      .function<write_safetensors>("write_safetensors")
      .function<begin_import>("import");
  module.type<Checkpoint>().method<describe>("describe").method<read_tensor>("read");
  module.type<Foreign>().method<list_foreign>("tensors").method<read_foreign>("read");
  module.type<Import>().method<add_to_import>("add").method<finish_import>("finish");
}

}  // namespace zt::ckpt
