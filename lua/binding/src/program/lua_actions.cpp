// zt.action and zt.buffer.
#include "program/lua_actions.h"

#include <algorithm>

#include "program/lua_handler.h"
#include "program/open.h"
#include "program/values.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"

namespace zt {
ZT_DEFINE_OBJECT(lua::LuaBuffer, "Buffer")
ZT_DEFINE_OBJECT(lua::LuaAction, "Action")
}  // namespace zt

namespace zt::lua {

namespace {

struct BufferOptions {
  std::string name, of = "unit", dtype = "float32";
  BufferResidence residence = BufferResidence::whole;
  Value shape = "like";
};

const std::vector<std::string>& owners() {
  static const std::vector<std::string> words{"run", "unit", "position", "layer"};
  return words;
}

Index parse_owner(const std::string& word) {
  return static_cast<Index>(std::ranges::find(owners(), word) - owners().begin());
}

std::vector<int64_t> sizes_of(const Value& value) {
  std::vector<int64_t> sizes;
  if (const auto* empty = value.get_if<Value::Table>(); empty && empty->empty()) return sizes;
  convert(value, "shape", sizes);
  for (const int64_t size : sizes) {
    if (size < 0) misuse("shape has the size {}: sizes are at least 0", size);
  }
  return sizes;
}

int make_buffer(lua_State* L) {
  static const auto schema =
      Schema<BufferOptions>("zt.buffer")
          .required("name", &BufferOptions::name, "lower-case name, by which actions find it: ctx.buffer.NAME")
          .optional("of", &BufferOptions::of, "what it is of: unit, position, layer or run", one_of(owners()))
          .optional("shape", &BufferOptions::shape,
                    "a list of sizes, \"like\" (as the unit's flat parameters), or function(owner, info) that returns a list")
          .optional("dtype", &BufferOptions::dtype, "\"float32\" or another dtype of tensors")
          .optional("residence", &BufferOptions::residence,
                    "whole (equal on all ranks), sharded (as the optimizer's state), own or local (each rank has other values)");
  const BufferOptions options = schema.parse(check_value(L, 1));
  LuaBuffer buffer{.name = options.name,
                   .of = parse_owner(options.of),
                   .residence = options.residence,
                   .dtype = parse_dtype(options.dtype),
                   .shape = options.shape};
  const auto* word = options.shape.get_if<std::string>();
  const auto* object = options.shape.get_if<Object>();
  const bool is_function = object && object->as<Callable>();
  if (word && *word != "like")
    misuse("zt.buffer.shape = '{}': give a list of sizes, a function that returns one, or \"like\"", *word);
  if (word && buffer.of != Index::unit)
    misuse(
        "zt.buffer{{name = \"{}\"}}: shape = \"like\" is that of a unit's parameters, and it is of the {}: give a list of sizes",
        buffer.name, options.of);
  if (buffer.residence == BufferResidence::sharded && (!word || buffer.of != Index::unit))
    misuse(
        "zt.buffer{{name = \"{}\"}}: residence = \"sharded\" is for buffers of units with shape = \"like\": no axis cuts others",
        buffer.name);
  if (!word && !is_function) sizes_of(options.shape);
  buffer.type = register_pass_buffer(buffer.name, buffer.of);
  push(L, std::make_shared<LuaBuffer>(std::move(buffer)));
  return 1;
}

// Returns the tables of `info` that describe what a buffer may be of.
Value::List owners_in(const Value& info, Index of) {
  const Value::Table& table = *info.get_if<Value::Table>();
  if (of == Index::none) return {Value::Table{}};
  const Value::List& list = *table.at(of == Index::unit ? "units" : "positions").get_if<Value::List>();
  if (of != Index::layer) return list;
  Value::List first_uses;  // by layer
  for (const Value& position : list) {
    const int64_t layer = *position.get_if<Value::Table>()->at("layer").get_if<int64_t>();
    if (layer == static_cast<int64_t>(first_uses.size())) first_uses.push_back(position);
  }
  return first_uses;
}

// Returns whether the rank has the unit, runs the position or one of the layer.
bool is_held(const RankProgram& program, const Value::List& positions, Index of, int index) {
  if (of == Index::none) return true;
  if (of == Index::unit) return program.units.at(index).held;
  return std::ranges::any_of(program.actions, [&](const Action& action) {
    if (action.kind != Kinds::get().forward) return false;
    const int64_t layer = *positions.at(action.target).get_if<Value::Table>()->at("layer").get_if<int64_t>();
    return of == Index::position ? action.target == index : layer == index;
  });
}

// Calls shape(owner, info).
Value called_shape(Callable& shape, const Value& owner, const Value& info) {
  lua_State* L = shape.begin();
  const StackScope restored(L, lua_gettop(L) - 1);
  push(L, owner);
  push(L, info);
  shape.call(2, 1);
  return check_value(L, -1);
}

}  // namespace

std::vector<PassBuffer> LuaBuffer::of_rank(const RankProgram& program, const Value& info) const {
  std::vector<PassBuffer> list;
  const Value::List& positions = *info.get_if<Value::Table>()->at("positions").get_if<Value::List>();
  const Value::List each = owners_in(info, of);
  for (int index = 0; index < static_cast<int>(each.size()); ++index) {
    if (!is_held(program, positions, of, index)) continue;
    const Value::Table& owner = *each[static_cast<size_t>(index)].get_if<Value::Table>();
    PassBuffer buffer{.type = type, .index = index, .residence = residence, .dtype = dtype};
    if (shape.get_if<std::string>()) {
      if (!*owner.at("trainable").get_if<bool>()) continue;
      if (residence != BufferResidence::sharded) buffer.shape = {*owner.at("numel").get_if<int64_t>()};
    } else {
      const auto* function = shape.get_if<Object>();
      const Value given = function ? called_shape(*function->as<Callable>(), owner, info) : shape;
      if (given.is_nil()) continue;
      buffer.shape = with_context([&] { return fmt::format("the buffer '{}'", name); }, [&] { return sizes_of(given); });
    }
    list.push_back(std::move(buffer));
  }
  return list;
}

void LuaAction::name_buffers(Action& action) const {
  if (buffers.empty()) return;
  std::vector<std::string> names = action.buffers();
  for (const auto& buffer : buffers) names.push_back(buffer->name);
  action.attrs["buffers"] = to_list(names);
}

namespace {

struct ActionOptions {
  std::string name, replaces;
  std::vector<std::string> reads, writes, frees, axes;
  Index target = Index::unit;
  bool micro_batch = false;
  Role role = Role::other;
  std::vector<std::shared_ptr<LuaBuffer>> buffers;
  std::shared_ptr<Callable> start;
};

std::string check_role(const Role& role) {
  if (role == Role::other || role == Role::reduce || role == Role::update) return {};
  return "is a role of the known kinds: give other, reduce or update";
}

const Schema<ActionOptions>& action_schema() {
  using Options = ActionOptions;
  static const auto schema =
      Schema<Options>("zt.action")
          .required("start", &Options::start, "function(ctx, action) that changes tensors in place and may return a Work")
          .optional("name", &Options::name, "upper-case name of the kind")
          .optional("replaces", &Options::replaces, "the known kind that it runs instead of what does so otherwise",
                    Check<std::string>(one_of(replaceable_kinds())))
          .optional("target", &Options::target, "what an action of this kind refers to: unit, position, layer or none")
          .optional("micro_batch", &Options::micro_batch, "whether its actions are of one micro-batch")
          .optional("role", &Options::role, "what it is for: other, reduce (sums gradients) or update (changes parameters)",
                    Check<Role>(check_role))
          .optional("reads", &Options::reads, "names of resources, such as param, master, grad, state, value, scalars")
          .optional("writes", &Options::writes, "names of resources")
          .optional("frees", &Options::frees, "names of resources whose data are gone afterwards")
          .optional("axes", &Options::axes, "names of the mesh axes it communicates on")
          .optional("buffers", &Options::buffers, "the buffers of passes that it reads and writes")
          .renamed("run", "start");
  return schema;
}

// The resources of an action are of its target: data of its unit, its position or its layer, or without an index.
std::vector<ResourceId> parse_resources(const ActionOptions& options, const std::vector<std::string>& names) {
  std::vector<ResourceId> types;
  for (const std::string& name : names) {
    const ResourceId id = types.emplace_back(resource_id(name));
    const ResourceType& type = type_of(id);
    if (type.is_of_pass) misuse("zt.action: '{}' is a buffer of a pass: name it in `buffers`", name);
    if (type.index != Index::none && type.index != options.target)
      misuse("zt.action{{name = \"{}\"}}: '{}' is data of a {}, and its target is \"{}\": give target = \"{}\"", options.name,
             name, word_of(type.index), word_of(options.target), word_of(type.index));
    if (type.has_micro_batch && !options.micro_batch)
      misuse("zt.action{{name = \"{}\"}}: '{}' is of one micro-batch: give micro_batch = true", options.name, name);
  }
  return types;
}

KindId register_action(const ActionOptions& options) {
  if (options.name.empty()) misuse("zt.action needs the name of a new kind, or `replaces` with a known one");
  const auto reads = parse_resources(options, options.reads), writes = parse_resources(options, options.writes),
             frees = parse_resources(options, options.frees);
  Kind kind;
  kind.name = options.name;
  kind.target = options.target;
  kind.has_micro_batch = options.micro_batch;
  kind.role = options.role;
  kind.doc = "defined by a script";
  kind.resources = [reads, writes, frees](const Action& action, const ModelInfo&) {
    Resources resources;
    const auto place = [&](ResourceId type) {
      return Resource{.type = type,
                      .index = type_of(type).index == Index::none ? 0 : std::max(action.target, 0),
                      .micro_batch = type_of(type).has_micro_batch ? action.micro_batch : -1};
    };
    for (const ResourceId type : reads) resources.reads.push_back(place(type));
    for (const ResourceId type : writes) resources.writes.push_back(place(type));
    for (const ResourceId type : frees) resources.frees.push_back(place(type));
    return resources;
  };
  return register_kind(std::move(kind));
}

// A replaced kind keeps its resources, axes and role.
KindId replaced_kind(const ActionOptions& options) {
  const bool is_plain = options.name.empty() && options.reads.empty() && options.writes.empty() && options.frees.empty() &&
                        options.axes.empty() && options.target == Index::unit && !options.micro_batch &&
                        options.role == Role::other;
  if (!is_plain)
    misuse(
        "zt.action{{replaces = \"{}\"}} keeps the name, target, resources, axes and role of that kind: give `start` and `buffers` "
        "only",
        options.replaces);
  return kind_id(options.replaces);
}

int make_action(lua_State* L) {
  const ActionOptions options = action_schema().parse(check_value(L, 1));
  const bool replaces = !options.replaces.empty();
  const KindId id = replaces ? replaced_kind(options) : register_action(options);
  const bool writes_master = std::ranges::count(options.writes, type_of(resource::master).name) > 0;
  push(L, std::make_shared<LuaAction>(LuaAction{id, replaces, options.axes, options.buffers,
                                                std::make_shared<LuaHandler>(kind(id).name, options.start, writes_master)}));
  return 1;
}

// Calling an Action makes a list entry: average(unit_index) -> {kind = "AVERAGE", target = unit_index, axes = {...}}; of a
// position's kind with micro-batches look(position, micro_batch).
int call_action(lua_State* L) {
  const auto lua_action = check<LuaAction>(L, 1);
  Action action{.kind = lua_action->kind};
  if (!is_absent(L, 2)) action.target = static_cast<int32_t>(check_integer(L, 2));
  if (!is_absent(L, 3)) action.micro_batch = static_cast<int32_t>(check_integer(L, 3));
  if (!lua_action->axes.empty()) action.set_axes(lua_action->axes);
  lua_action->name_buffers(action);
  push(L, to_value(action));
  return 1;
}

}  // namespace

void open_actions(Module& module) {
  module.function<make_action>("action").function<make_buffer>("buffer");
  module.type<LuaAction>().metamethod<call_action>("__call");
  module.type<LuaBuffer>();
}

}  // namespace zt::lua
