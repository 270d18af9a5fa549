// The Lua binding of the module.
#include <ATen/ops/from_blob.h>

#include <optional>

#include "stream/open.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/text_reader.h"
#include "tokenizer/tokenize.h"
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

// --- tokenizers ---

struct TrainCall {
  std::string input;
  int64_t vocab = TrainOptions{}.vocab;
  std::string type = TrainOptions{}.type;
  int64_t sample_bytes = TrainOptions{}.sample_bytes;
};
const auto kTrain =
    Schema<TrainCall>("data.tokenizer.train")
        .required("input", &TrainCall::input, "the text, UTF-8")
        .optional("vocab", &TrainCall::vocab, "number of pieces, 256 of them single bytes", between(kFewestPieces, 1 << 20))
        .optional("type", &TrainCall::type, "'bpe' or 'unigram'", one_of({"bpe", "unigram"}))
        .optional("sample_bytes", &TrainCall::sample_bytes, "bytes of the text to learn from", at_least(1 << 16));

int train(lua_State* L) {
  const TrainCall call = kTrain.parse(lua::check_value(L, 1));
  FileText text(call.input);
  const TrainOptions options{.vocab = call.vocab, .type = call.type, .sample_bytes = call.sample_bytes};
  lua::push(L, train_sentencepiece(text, options, call.input));
  return 1;
}

int load(lua_State* L) {
  lua::push(L, load_tokenizer(lua::check_string(L, 1)));
  return 1;
}

// tokenizer.parse(the bytes of a sentencepiece model, its name for messages) -> Tokenizer
int parse(lua_State* L) {
  lua::push(L, sentencepiece_tokenizer(lua::check_string(L, 1), lua::check_string(L, 2)));
  return 1;
}

int bytes(lua_State* L) {
  lua::push(L, byte_tokenizer());
  return 1;
}

int encode(lua_State* L) {
  std::vector<int32_t> ids;
  lua::check<Tokenizer>(L, 1)->encode(lua::check_string(L, 2), ids);
  const auto count = static_cast<int64_t>(ids.size());
  lua::push(L, at::from_blob(ids.data(), {count}, at::kInt).to(at::kLong));
  return 1;
}

std::vector<int64_t> check_ids(lua_State* L, int index) {
  std::vector<int64_t> ids;
  if (!lua::is_tensor(L, index)) {
    convert(lua::check_value(L, index), "decode: the token ids", ids);
    return ids;
  }
  const at::Tensor tensor = lua::check_tensor(L, index);
  if (!at::isIntegralType(tensor.scalar_type(), false))
    misuse("decode: token ids are integers, got a tensor of {}", tensor.dtype().name());
  const at::Tensor flat = tensor.to(at::kCPU, at::kLong).contiguous().view(-1);
  const auto* first = flat.data_ptr<int64_t>();
  return {first, first + flat.numel()};
}

int decode(lua_State* L) {
  lua::push(L, lua::check<Tokenizer>(L, 1)->decode(check_ids(L, 2)));
  return 1;
}

// --- from text to tokens ---

struct TokenizeCall {
  std::string input, output;
  std::shared_ptr<Tokenizer> tokenizer;
  std::shared_ptr<lua::Callable> progress;
};
const auto kTokenize = Schema<TokenizeCall>("data.tokenize")
                           .required("input", &TokenizeCall::input, "the text")
                           .required("output", &TokenizeCall::output, "the token file, NAME.npy")
                           .required("tokenizer", &TokenizeCall::tokenizer, "a tokenizer made by data.tokenizer")
                           .optional("progress", &TokenizeCall::progress, "function(bytes done, bytes in total)");

int tokenize(lua_State* L) {
  const TokenizeCall call = kTokenize.parse(lua::check_value(L, 1));
  Progress progress;
  if (call.progress) {
    progress = [&](int64_t done, int64_t total) {
      lua_State* callee = call.progress->begin();
      lua::push(callee, done);
      lua::push(callee, total);
      call.progress->call(2, 0);
    };
  }
  lua::push(L, tokenize_file(call.input, call.output, *call.tokenizer, progress));
  return 1;
}

// check_tokenize(input, output)
int check_files(lua_State* L) {
  check_tokenize(lua::check_string(L, 1), lua::check_string(L, 2));
  return 0;
}

}  // namespace

}  // namespace zt::data

ZT_LUA_MODULE(data) {
  using namespace zt::data;
  module.function<zt::lua::made<open_tokens>>("tokens").function<zt::lua::made<open_documents>>("documents");
  module.function<tokenize>("tokenize");
  module.function<check_files>("check_tokenize");
  module.table("tokenizer", [](zt::lua::Module& table) {
    table.function<train>("train").function<load>("load").function<parse>("parse").function<bytes>("bytes");
  });
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
  module.type<zt::Tokenizer>()
      .method<encode>("encode")
      .method<decode>("decode")
      .method<&zt::Tokenizer::model>("model")
      .getter<&zt::Tokenizer::vocab>("vocab")
      .getter<[](const zt::Tokenizer& tokenizer) { return std::string(tokenizer.kind()); }>("kind");
}
