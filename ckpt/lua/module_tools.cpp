// The binding of zt.ckpt for the other commands: lists folders of checkpoints, and reads single checkpoints.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "folder/store.h"
#include "load/loader.h"
#include "load/tensor_reader.h"
#include "module.h"
#include "zt/base/tensor.h"
#include "zt/io/io_errors.h"
#include "zt/io/posix_fs.h"
#include "zt/lua/state.h"

namespace zt {
namespace ckpt {

// A checkpoint for reading. Its master file is read once.
struct Checkpoint {
  io::PosixFs files;
  std::string folder;
  MasterIndex index;

  Checkpoint(const World& world, std::string path) : files(world), folder(std::move(path)), index(read_index(files, folder)) {}
};

}  // namespace ckpt

ZT_OBJECT(ckpt::Checkpoint)
ZT_DEFINE_OBJECT(ckpt::Checkpoint, "Checkpoint")
}  // namespace zt

namespace zt::ckpt {

namespace {

// --- folders of checkpoints ---

// Pushes the list of texts that texts_of(files, path) returns for the path in argument 1.
template <auto texts_of>
int list_texts(lua_State* L) {
  io::PosixFs files(lua::world(L));
  const std::vector<std::string> texts = texts_of(files, check_path(L, 1));
  lua::push(L, Value(Value::List(texts.begin(), texts.end())));
  return 1;
}

int list_checkpoints(lua_State* L) {
  io::PosixFs files(lua::world(L));
  Value::List list;
  for (const auto& [step, name] : complete(files, check_path(L, 1))) {
    list.emplace_back(Value::Table{{"step", step}, {"name", name}});
  }
  lua::push(L, Value(std::move(list)));
  return 1;
}

int latest_checkpoint(lua_State* L) {
  io::PosixFs files(lua::world(L));
  const auto found = latest(files, check_path(L, 1));
  lua::push(L, found ? Value(*found) : Value());
  return 1;
}

int remove_checkpoints(lua_State* L) {
  io::PosixFs files(lua::world(L));
  remove_all(files, check_path(L, 1));
  return 0;
}

// kind(path) -> "missing", "file", "folder" or "other", and a phrase for messages such as "a FIFO"
int kind(lua_State* L) {
  constexpr std::array<const char*, 3> kNames{"missing", "file", "folder"};
  const io::EntryKind kind = io::posix_files().kind_of(check_path(L, 1));
  const auto number = static_cast<size_t>(kind);
  lua::push(L, std::string(number < kNames.size() ? kNames.at(number) : "other"));
  lua::push(L, std::string(io::phrase_for(kind)));
  return 2;
}

int folder_size(lua_State* L) {
  io::PosixFs files(lua::world(L));
  lua::push(L, folder_bytes(files, check_path(L, 1)));
  return 1;
}

// --- one checkpoint ---

// describe() -> {tensors = {{name, dtype, shape, bytes, pieces, attributes}, ...}, values = {name = value}}
int describe(lua_State* L) {
  const MasterIndex& index = lua::check<Checkpoint>(L, 1)->index;
  Value::List tensors;
  for (const SavedTensor& tensor : index.tensors) {
    Value::Table entry = description(tensor.name, tensor.dtype, tensor.shape);
    entry["bytes"] = c10::multiply_integers(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    entry["pieces"] = static_cast<int64_t>(tensor.pieces.size());
    entry["attributes"] = tensor.attributes;
    tensors.emplace_back(std::move(entry));
  }
  lua::push(L, Value(Value::Table{{"tensors", std::move(tensors)}, {"values", values_of(index)}}));
  return 1;
}

// Returns the saved tensor of this name. Throws Misuse, with the nearest name, if there is none.
const SavedTensor& tensor_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = std::ranges::find(checkpoint.index.tensors, name, &SavedTensor::name);
  if (found != checkpoint.index.tensors.end()) return *found;
  std::vector<std::string> names;
  for (const SavedTensor& tensor : checkpoint.index.tensors) names.push_back(tensor.name);
  misuse("the checkpoint '{}' has no tensor '{}'{}", checkpoint.folder, name, suggest(name, names));
}

at::Tensor read_region(Checkpoint& checkpoint, const SavedTensor& tensor, const Region& region, at::IntArrayRef shape) {
  const at::Tensor values = at::empty(shape, tensor.dtype);
  read_tensors(checkpoint.files, checkpoint.folder, checkpoint.index, {{&tensor, region, values.view({-1})}});
  return values;
}

// read(name) -> the whole tensor
int read_tensor(lua_State* L) {
  const auto checkpoint = lua::check<Checkpoint>(L, 1);
  const SavedTensor& tensor = tensor_of(*checkpoint, lua::check_string(L, 2));
  lua::push(L, read_region(*checkpoint, tensor, whole_region(tensor.shape), tensor.shape));
  return 1;
}

// read_rows(name, first, count) -> [count, columns] of a tensor [..., columns], or [count] of a vector
int read_rows(lua_State* L) {
  const auto checkpoint = lua::check<Checkpoint>(L, 1);
  const SavedTensor& tensor = tensor_of(*checkpoint, lua::check_string(L, 2));
  const int64_t first = lua::check_integer(L, 3), count = lua::check_integer(L, 4);
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape.back() : 1;
  Region region = whole_region(tensor.shape);
  const int64_t rows = columns == 0 ? 0 : region.count / columns;
  if (first < 0 || count < 0 || first > rows || count > rows - first)
    misuse("'{}' has rows 0 to {}: rows {} to {} are outside", tensor.name, rows - 1, first, first + count - 1);
  region.first = first * columns;
  region.count = count * columns;
  std::vector<int64_t> shape{count};
  if (tensor.shape.size() > 1) shape.push_back(columns);
  lua::push(L, read_region(*checkpoint, tensor, region, shape));
  return 1;
}

// open(folder) -> Checkpoint
int open_checkpoint(lua_State* L) {
  lua::push(L, std::make_shared<Checkpoint>(lua::world(L), check_path(L, 1)));
  return 1;
}

}  // namespace

Value::Table description(const std::string& name, at::ScalarType dtype, const std::vector<int64_t>& shape) {
  return {{"name", name}, {"dtype", dtype_name(dtype)}, {"shape", Value::List(shape.begin(), shape.end())}};
}

void open_tools(lua::Module& module) {
  module.function<list_checkpoints>("list")
      .function<latest_checkpoint>("latest")
      .function<list_texts<partial>>("partial")
      .function<list_texts<folders_in>>("folders")
      .function<kind>("kind")
      .function<folder_size>("folder_bytes")
      .function<list_texts<collect_garbage>>("gc")
      .function<remove_checkpoints>("remove_all")
      .function<open_checkpoint>("open")
      .function<list_texts<verify>>("verify");
  module.type<Checkpoint>().method<describe>("describe").method<read_tensor>("read").method<read_rows>("read_rows");
}

}  // namespace zt::ckpt
