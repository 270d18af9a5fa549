#include "streams.h"

#include <optional>

#include "stream/open.h"
#include "stream/stream_options.h"
#include "tokenizer/tokenizer.h"
#include "zt/base/options.h"

namespace zt::data {

namespace {

// --- opening ---

// A native function: the stream that `open` returns for the options in argument 1.
template <auto open>
int opened(lua_State* L) {
  lua::push(L, open(lua::check_value(L, 1), lua::world(L)));
  return 1;
}

BlendEntry check_entry(lua_State* L, int place) {
  const Value value = lua::check_value(L, -1);
  const auto* pair = value.get_if<Value::List>();
  if (!pair || pair->size() != 2) misuse("give a list {{stream, weight}}, got {}", value.type_name());
  BlendEntry entry;
  convert((*pair)[0], fmt::format("data.blend[{}][1]", place), entry.stream);
  convert((*pair)[1], fmt::format("data.blend[{}][2]", place), entry.weight);
  return entry;
}

// data.blend{{stream, weight}, ..., batch =, seed =, allow =}
int blend(lua_State* L) {
  if (!lua_istable(L, 1)) misuse("data.blend takes a table of streams and their weights, got {}", luaL_typename(L, 1));
  std::vector<BlendEntry> entries;
  const int count = static_cast<int>(lua_objlen(L, 1));
  for (int place = 1; place <= count; ++place) {
    lua_rawgeti(L, 1, place);
    entries.push_back(
        with_context([&] { return fmt::format("data.blend: entry {}", place); }, [&] { return check_entry(L, place); }));
    lua_pop(L, 1);
  }
  Value::Table options;
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) options[lua_tostring(L, -2)] = lua::check_value(L, -1);
  }
  lua::push(L, open_blend(entries, options));
  return 1;
}

// --- methods of all streams ---

void push_batch(lua_State* L, const Fields& fields) {
  lua_createtable(L, 0, static_cast<int>(fields.size()));
  for (const auto& [name, tensor] : fields) {
    lua::push(L, tensor);
    lua_setfield(L, -2, name.c_str());
  }
}

void push_batch(lua_State* L, const PromptBatch& batch) {
  lua_createtable(L, 0, 3);
  lua::push_list(L, batch.prompts);
  lua_setfield(L, -2, "prompts");
  lua::push_list(L, batch.items);
  lua_setfield(L, -2, "items");
  lua::push(L, batch.sample);
  lua_setfield(L, -2, "sample");
}

template <class S>
int stream_batch(lua_State* L) {
  push_batch(L, lua::check<S>(L, 1)->batch(lua::check_integer(L, 2)));
  return 1;
}

// One iteration of `for step, batch in text:steps(n)`. Moves the stream to the next step before the loop body runs, so that a
// state saved in the body resumes with the next step.
template <class S>
int next_step(lua_State* L) {
  const auto stream = lua::check<S>(L, lua_upvalueindex(1));
  const int64_t step = stream->step();
  if (step >= lua::check_integer(L, lua_upvalueindex(2))) return 0;
  const auto batch = stream->batch(step);
  stream->seek(step + 1);
  lua::push(L, step);
  push_batch(L, batch);
  return 2;
}

template <class S>
int stream_steps(lua_State* L) {
  lua::check<S>(L, 1);
  lua::check_integer(L, 2);
  lua_settop(L, 2);
  lua_pushcclosure(L, lua::guarded<next_step<S>>, 2);
  return 1;
}

template <class S>
int stream_seek(lua_State* L) {
  lua::check<S>(L, 1)->seek(lua::check_integer(L, 2));
  return 0;
}

template <class S>
int stream_epoch(lua_State* L) {
  lua::push(L, lua::check<S>(L, 1)->epoch(lua::check_integer(L, 2)));
  return 1;
}

struct RestoreCall {
  std::optional<std::string> allow;
};
const auto kRestore = Schema<RestoreCall>("stream:restore")
                          .optional("allow", &RestoreCall::allow, "'other_order': the state may have another order of samples",
                                    one_of({kOtherOrder}));

template <class S>
int stream_restore(lua_State* L) {
  const auto stream = lua::check<S>(L, 1);
  const RestoreCall call = kRestore.parse(lua::is_absent(L, 3) ? Value() : lua::check_value(L, 3));
  stream->restore(lua::check_value(L, 2), call.allow ? Steps::Order::any : Steps::Order::same);
  return 0;
}

template <class S>
lua::TypeBuilder<S> stream_type(lua::Module& module) {
  auto type = module.type<S>();
  type.template method<stream_batch<S>>("batch")
      .template method<stream_steps<S>>("steps")
      .template method<stream_seek<S>>("seek")
      .template method<stream_epoch<S>>("epoch")
      .template method<stream_restore<S>>("restore")
      .template method<[](const S& stream) { return stream.state(); }>("state")
      .template getter<[](const S& stream) { return stream.batch_size(); }>("batch_size")
      .template getter<[](const S& stream) { return stream.step(); }>("step");
  return type;
}

}  // namespace

void open_streams(lua::Module& module) {
  module.function<lua::made<open_tokens>>("tokens").function<lua::made<open_documents>>("documents");
  module.function<opened<open_conversations>>("conversations").function<opened<open_preferences>>("preferences");
  module.function<opened<open_prompts>>("prompts").function<blend>("blend");
  stream_type<Stream>(module)
      .method<[](const Stream& stream) { return stream.source().entropy(); }>("entropy")
      .getter<[](const Stream& stream) { return stream.source().file().vocab(); }>("vocab")
      .getter<[](const Stream& stream) { return stream.source().samples(); }>("samples")
      .getter<[](const Stream& stream) { return stream.source().seq(); }>("seq")
      .getter<[](const Stream& stream) { return load_tokenizer(stream.source().file().path()); }>("tokenizer");
  stream_type<PromptStream>(module)
      .getter<[](const PromptStream& stream) { return stream.file().vocab(); }>("vocab")
      .getter<&PromptStream::samples>("samples")
      .getter<[](const PromptStream& stream) { return load_tokenizer(stream.file().path()); }>("tokenizer");
}

}  // namespace zt::data
