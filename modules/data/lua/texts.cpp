// Tokenizers, chat templates, and the way from texts to token files.
#include "texts.h"

#include <ATen/ops/from_blob.h>

#include "template/chat_template.h"
#include "template/kept_json.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/text_reader.h"
#include "tokenizer/tokenize.h"
#include "tokenizer/tokenizer.h"
#include "zt/base/options.h"

namespace zt::data {

namespace {

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

// tokenizer.parse(the content of a tokenizer.json or of a sentencepiece model, its name for messages) -> Tokenizer
int parse(lua_State* L) {
  lua::push(L, parse_tokenizer(lua::check_string(L, 1), lua::check_string(L, 2)));
  return 1;
}

int bytes(lua_State* L) {
  lua::push(L, byte_tokenizer());
  return 1;
}

struct EncodeCall {
  Specials specials = Specials::none;
  std::vector<std::vector<int64_t>> contents;
};
const auto kEncode =
    Schema<EncodeCall>("tokenizer:encode")
        .optional("specials", &EncodeCall::specials,
                  "none: special tokens in the text are text; parsed: they become tokens; added: and those around a text")
        .optional("contents", &EncodeCall::contents, "ranges {begin, end} of bytes, from 0, that are text all the same");

// tokenizer:encode(text, [{specials =, contents =}]) -> int64 [n]
int encode(lua_State* L) {
  const std::string text = lua::check_string(L, 2);
  const EncodeCall call = kEncode.parse(lua::is_absent(L, 3) ? Value() : lua::check_value(L, 3));
  const std::vector<TextRange> contents = text_ranges("tokenizer:encode.contents", call.contents, text.size());
  std::vector<int32_t> ids;
  lua::check<Tokenizer>(L, 1)->encode(text, ids, {call.specials, contents});
  const auto count = static_cast<int64_t>(ids.size());
  lua::push(L, at::from_blob(ids.data(), {count}, at::kInt).to(at::kLong));
  return 1;
}

// tokenizer:id_of("<|im_end|>") -> the id, or nil
int id_of(lua_State* L) {
  const auto id = lua::check<Tokenizer>(L, 1)->id_of(lua::check_string(L, 2));
  if (!id) return 0;
  lua::push(L, *id);
  return 1;
}

int is_special(lua_State* L) {
  lua::push(L, lua::check<Tokenizer>(L, 1)->is_special(lua::check_integer(L, 2)));
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

// tokenizer:pieces(tokens) -> the text that each token adds, and of a special token its name
int pieces(lua_State* L) {
  const auto tokenizer = lua::check<Tokenizer>(L, 1);
  std::vector<std::string> texts;
  for (const int64_t id : check_ids(L, 2))
    texts.push_back(tokenizer->is_special(id) ? tokenizer->token_of(id) : tokenizer->bytes_of(id));
  lua::push_list(L, texts);
  return 1;
}

// --- chat templates ---

// data.chat_template(source, its name for messages) -> ChatTemplate
int make_template(lua_State* L) {
  lua::push(L, parse_chat_template(lua::check_string(L, 1), lua::check_string(L, 2)));
  return 1;
}

// data.json(text, [name]) -> Json: its content as it is written, for the messages and variables of templates
int keep_json(lua_State* L) {
  lua::push(L, parse_kept_json(lua::check_string(L, 1), lua::is_absent(L, 2) ? "data.json: the text" : lua::check_string(L, 2)));
  return 1;
}

// json:fields() -> {name = Json}
int json_fields(lua_State* L) {
  lua::push(L, Value(fields_of(*lua::check<KeptJson>(L, 1))));
  return 1;
}

// json:length() -> the number of items of a list or fields of an object, of another value 1
int json_length(lua_State* L) {
  lua::push(L, static_cast<int64_t>(lua::check<KeptJson>(L, 1)->content.size()));
  return 1;
}

struct RenderCall {
  Value variables;
  bool add_generation_prompt = false;
};
const auto kRender = Schema<RenderCall>("template:render")
                         .optional("variables", &RenderCall::variables, "further names that the template reads: {tools = ...}")
                         .optional("add_generation_prompt", &RenderCall::add_generation_prompt, "ends where the answer begins");

Value to_value(const std::vector<TextRange>& ranges) {
  Value::List list;
  for (const TextRange& range : ranges) {
    Value::List pair;
    pair.reserve(2);
    pair.emplace_back(static_cast<int64_t>(range.begin));
    pair.emplace_back(static_cast<int64_t>(range.end));
    list.emplace_back(std::move(pair));
  }
  return list;
}

// template:render(messages, [{variables =, add_generation_prompt =}]) -> {text =, contents = {{begin, end}, ...}, answers =}
int render(lua_State* L) {
  const RenderCall call = kRender.parse(lua::is_absent(L, 3) ? Value() : lua::check_value(L, 3));
  const Value variables = call.variables.is_nil() ? Value(Value::Table()) : call.variables;
  const RenderedChat chat = lua::check<ChatTemplate>(L, 1)->render(lua::check_value(L, 2), variables, call.add_generation_prompt);
  lua::push(L,
            Value(Value::Table{{"text", chat.text}, {"contents", to_value(chat.contents)}, {"answers", to_value(chat.answers)}}));
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

std::vector<TextRange> text_ranges(const std::string& name, const std::vector<std::vector<int64_t>>& given, size_t size) {
  std::vector<TextRange> ranges;
  for (const std::vector<int64_t>& range : given) {
    const size_t least = ranges.empty() ? 0 : ranges.back().end;
    const bool is_right = range.size() == 2 && range[0] >= static_cast<int64_t>(least) && range[1] >= range[0] &&
                          range[1] <= static_cast<int64_t>(size);
    if (!is_right) misuse("{} must be ascending ranges {{begin, end}} within the {} bytes of the text", name, size);
    ranges.push_back({static_cast<size_t>(range[0]), static_cast<size_t>(range[1])});
  }
  return ranges;
}

void open_texts(lua::Module& module) {
  module.function<tokenize>("tokenize");
  module.function<check_files>("check_tokenize");
  module.function<make_template>("chat_template").function<keep_json>("json");
  module.type<KeptJson>().method<json_fields>("fields").method<json_length>("length");
  module.table("tokenizer", [](lua::Module& table) {
    table.function<train>("train").function<load>("load").function<parse>("parse").function<bytes>("bytes");
  });
  module.type<Tokenizer>()
      .method<encode>("encode")
      .method<decode>("decode")
      .method<pieces>("pieces")
      .method<id_of>("id_of")
      .method<is_special>("is_special")
      .method<&Tokenizer::model>("model")
      .getter<&Tokenizer::vocab>("vocab")
      .getter<[](const Tokenizer& tokenizer) { return std::string(tokenizer.kind()); }>("kind");
  module.type<ChatTemplate>().method<render>("render").method<&ChatTemplate::source>("source");
}

}  // namespace zt::data
