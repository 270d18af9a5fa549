// The Lua binding of the module.
#include <optional>

#include "documents.h"
#include "stream/open.h"
#include "texts.h"
#include "tokenizer/tokenizer.h"
#include "zt/base/options.h"
#include "zt/lua/state.h"

namespace zt::data {

namespace {

// --- streams ---

void push_batch(lua_State* L, const Fields& fields) {
  lua_createtable(L, 0, static_cast<int>(fields.size()));
  for (const auto& [name, tensor] : fields) {
    lua::push(L, tensor);
    lua_setfield(L, -2, name.c_str());
  }
}

int stream_batch(lua_State* L) {
  push_batch(L, lua::check<Stream>(L, 1)->batch(lua::check_integer(L, 2)));
  return 1;
}

// One iteration of `for step, batch in text:steps(n)`. Moves the stream to the next step before the loop body runs, so that a
// state saved in the body resumes with the next step.
int next_step(lua_State* L) {
  const auto stream = lua::check<Stream>(L, lua_upvalueindex(1));
  const int64_t step = stream->step();
  if (step >= lua::check_integer(L, lua_upvalueindex(2))) return 0;
  const Fields fields = stream->batch(step);
  stream->seek(step + 1);
  lua::push(L, step);
  push_batch(L, fields);
  return 2;
}

int stream_steps(lua_State* L) {
  lua::check<Stream>(L, 1);
  lua::check_integer(L, 2);
  lua_settop(L, 2);
  lua_pushcclosure(L, lua::guarded<next_step>, 2);
  return 1;
}

int stream_seek(lua_State* L) {
  lua::check<Stream>(L, 1)->seek(lua::check_integer(L, 2));
  return 0;
}

int stream_epoch(lua_State* L) {
  lua::push(L, lua::check<Stream>(L, 1)->epoch(lua::check_integer(L, 2)));
  return 1;
}

struct RestoreCall {
  std::optional<std::string> allow;
};
const auto kRestore = Schema<RestoreCall>("stream:restore")
                          .optional("allow", &RestoreCall::allow, "'other_order': the state may have another order of samples",
                                    one_of({kOtherOrder}));

int stream_restore(lua_State* L) {
  const auto stream = lua::check<Stream>(L, 1);
  const RestoreCall call = kRestore.parse(lua::is_absent(L, 3) ? Value() : lua::check_value(L, 3));
  stream->restore(lua::check_value(L, 2), call.allow ? Stream::Order::any : Stream::Order::same);
  return 0;
}

}  // namespace

}  // namespace zt::data

ZT_LUA_MODULE(data) {
  using namespace zt::data;
  module.function<zt::lua::made<open_tokens>>("tokens").function<zt::lua::made<open_documents>>("documents");
  open_texts(module);
  open_document_files(module);
  module.from_lua("tokenize_chat", "zt.data.tokenize_chat");
  module.type<Stream>()
      .method<stream_batch>("batch")
      .method<stream_steps>("steps")
      .method<stream_seek>("seek")
      .method<stream_epoch>("epoch")
      .method<[](const Stream& stream) { return stream.source().entropy(); }>("entropy")
      .method<&Stream::state>("state")
      .method<stream_restore>("restore")
      .getter<[](const Stream& stream) { return stream.source().file().vocab(); }>("vocab")
      .getter<[](const Stream& stream) { return stream.source().samples(); }>("samples")
      .getter<[](const Stream& stream) { return stream.source().seq(); }>("seq")
      .getter<&Stream::batch_size>("batch_size")
      .getter<&Stream::step>("step")
      .getter<[](const Stream& stream) { return load_tokenizer(stream.source().file().path()); }>("tokenizer");
}
