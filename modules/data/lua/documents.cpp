// The lines of a text, the tokens of answers, and the files of documents.
#include "documents.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <filesystem>

#include "template/kept_json.h"
#include "texts.h"
#include "tokenizer/answer_tokens.h"
#include "tokenizer/document_writer.h"
#include "tokenizer/text_lines.h"
#include "zt/base/options.h"

namespace zt::data {

namespace {

// data.lines(path) -> TextLines
int open_lines(lua_State* L) {
  lua::push(L, std::make_shared<TextLines>(lua::check_string(L, 1)));
  return 1;
}

// lines:next() -> the next line, or nil
int next_line(lua_State* L) {
  const auto line = lua::check<TextLines>(L, 1)->next();
  if (!line) return 0;
  lua::push(L, *line);
  return 1;
}

// json:items() -> {Json, ...}
int json_items(lua_State* L) {
  const auto json = lua::check<KeptJson>(L, 1);
  if (!json->content.is_array()) misuse("this JSON is {}: only a list has items", json->content.type_name());
  Value::List items;
  for (const auto& item : json->content) items.emplace_back(Object::of<KeptJson>(std::make_shared<KeptJson>(KeptJson{item})));
  lua::push(L, Value(std::move(items)));
  return 1;
}

struct AnswersCall {
  std::vector<std::vector<int64_t>> contents, answers;
  int64_t from = 0;
  std::vector<int64_t> stop_tokens;
  bool ends_at_stop = false, counts_all = false;
  std::vector<int64_t> begin;
  std::optional<int64_t> end;
};
const auto kAnswers =
    Schema<AnswersCall>("tokenizer:encode_answers")
        .optional("contents", &AnswersCall::contents, "ranges {begin, end} of bytes, from 0, in which no special token is found")
        .optional("answers", &AnswersCall::answers, "ranges {begin, end} of bytes, from 0, that count in the loss")
        .optional("from", &AnswersCall::from, "bytes at the beginning that another document holds, which this one continues",
                  at_least(0))
        .optional("stop_tokens", &AnswersCall::stop_tokens, "tokens that end an answer")
        .optional("ends_at_stop", &AnswersCall::ends_at_stop, "what follows the last of them in an answer does not count")
        .optional("counts_all", &AnswersCall::counts_all, "all tokens but the first one count")
        .optional("begin", &AnswersCall::begin, "tokens before the text")
        .optional("end_token", &AnswersCall::end, "a token after each answer, which counts");

void check_token(const Tokenizer& tokenizer, int64_t id, const char* name) {
  if (id < 0 || id >= tokenizer.vocab())
    misuse("tokenizer:encode_answers.{} has the token {}: this tokenizer has the tokens 0 to {}", name, id,
           tokenizer.vocab() - 1);
}

// tokenizer:encode_answers(text, [options]) -> {tokens = int64 [n], mask = uint8 [n], size = n, counted =, stopped =}
int encode_with_mask(lua_State* L) {
  const auto tokenizer = lua::check<Tokenizer>(L, 1);
  const std::string text = lua::check_string(L, 2);
  const AnswersCall call = kAnswers.parse(lua::is_absent(L, 3) ? Value() : lua::check_value(L, 3));
  const auto contents = text_ranges("tokenizer:encode_answers.contents", call.contents, text.size());
  const auto answers = text_ranges("tokenizer:encode_answers.answers", call.answers, text.size());
  if (call.from > static_cast<int64_t>(text.size()) || (!answers.empty() && answers[0].begin < static_cast<size_t>(call.from)))
    misuse("tokenizer:encode_answers.from is {}: it must lie in the {} bytes of the text, and before all answers", call.from,
           text.size());
  for (const int64_t id : call.begin) check_token(*tokenizer, id, "begin");
  if (call.end) check_token(*tokenizer, *call.end, "end_token");
  AnswerTokens found = encode_answers(*tokenizer, {.text = text,
                                                   .contents = contents,
                                                   .answers = answers,
                                                   .from = static_cast<size_t>(call.from),
                                                   .stop_tokens = call.stop_tokens,
                                                   .ends_at_stop = call.ends_at_stop,
                                                   .counts_all = call.counts_all,
                                                   .begin = call.begin,
                                                   .end = call.end});
  const auto count = static_cast<int64_t>(found.tokens.size());
  lua_createtable(L, 0, 5);
  lua::push(L, at::from_blob(found.tokens.data(), {count}, at::kInt).to(at::kLong));
  lua_setfield(L, -2, "tokens");
  lua::push(L, at::from_blob(found.counts.data(), {count}, at::kByte).clone());
  lua_setfield(L, -2, "mask");
  const std::pair<const char*, int64_t> numbers[] = {
      {"size", count}, {"counted", std::ranges::count(found.counts, 1)}, {"stopped", found.stopped}};
  for (const auto& [name, number] : numbers) {
    lua::push(L, number);
    lua_setfield(L, -2, name);
  }
  return 1;
}

// --- the files of documents ---

struct WriterCall {
  std::string input, output;
  std::shared_ptr<Tokenizer> tokenizer;
  bool items = false;
};
const auto kWriter = Schema<WriterCall>("data.document_writer")
                         .required("input", &WriterCall::input, "the file that the documents come from")
                         .required("output", &WriterCall::output, "the token file, NAME.npy")
                         .required("tokenizer", &WriterCall::tokenizer, "the tokenizer of the documents")
                         .optional("items", &WriterCall::items, "also writes NAME.items.jsonl");

// data.document_writer{input =, output =, tokenizer =, [items =]} -> DocumentWriter
int make_writer(lua_State* L) {
  const WriterCall call = kWriter.parse(lua::check_value(L, 1));
  check_documents(call.input, call.output);
  const auto items = call.items ? DocumentWriter::Items::lines : DocumentWriter::Items::none;
  lua::push(L, std::make_shared<DocumentWriter>(call.tokenizer, call.output, items));
  return 1;
}

// writer:add(tokens, mask)
int add_document(lua_State* L) {
  const at::Tensor tokens = lua::check_tensor(L, 2).to(at::kCPU, at::kInt).contiguous();
  const at::Tensor mask = lua::check_tensor(L, 3).to(at::kCPU, at::kByte).contiguous();
  lua::check<DocumentWriter>(L, 1)->add({tokens.data_ptr<int32_t>(), static_cast<size_t>(tokens.numel())},
                                        {mask.data_ptr<uint8_t>(), static_cast<size_t>(mask.numel())});
  return 0;
}

int add_line(lua_State* L) {
  lua::check<DocumentWriter>(L, 1)->add_item(lua::check_string(L, 2));
  return 0;
}

struct CommitCall {
  std::shared_ptr<TextLines> lines;
  std::string kind, mask_of;
  std::optional<std::string> source;
  int64_t records = 0;
  std::vector<int64_t> stop_tokens;
};
const auto kCommit = Schema<CommitCall>("writer:commit")
                         .required("lines", &CommitCall::lines, "the lines of the input, all of them read")
                         .required("kind", &CommitCall::kind, "'conversations', 'preferences' or 'prompts'",
                                   one_of({"conversations", "preferences", "prompts"}))
                         .required("mask_of", &CommitCall::mask_of, "which tokens count")
                         .optional("template", &CommitCall::source, "the source of the chat template")
                         .required("records", &CommitCall::records, "the number of records")
                         .optional("stop_tokens", &CommitCall::stop_tokens, "tokens that end an answer");

int commit_documents(lua_State* L) {
  const CommitCall call = kCommit.parse(lua::check_value(L, 2));
  const TextLines& lines = *call.lines;
  Companion companion{.tokens = 0,
                      .vocab = 0,
                      .tokenizer = {},
                      .model = {},
                      .model_hash = {},
                      .source = std::filesystem::path(lines.path()).filename(),
                      .source_bytes = lines.size(),
                      .source_hash = lines.hash()};
  companion.documents = DocumentsNote{.kind = call.kind,
                                      .mask_of = call.mask_of,
                                      .template_hash = call.source ? content_hash(*call.source) : "",
                                      .records = call.records,
                                      .stop_tokens = call.stop_tokens};
  lua::check<DocumentWriter>(L, 1)->commit(std::move(companion));
  return 0;
}

}  // namespace

void open_document_files(lua::Module& module) {
  module.function<open_lines>("lines").function<make_writer>("document_writer");
  module.type<TextLines>()
      .method<next_line>("next")
      .getter<&TextLines::number>("number")
      .getter<&TextLines::done>("done")
      .getter<&TextLines::size>("size");
  module.type<KeptJson>().method<json_items>("items");
  module.type<Tokenizer>().method<encode_with_mask>("encode_answers");
  module.type<DocumentWriter>()
      .method<add_document>("add")
      .method<add_line>("add_item")
      .method<commit_documents>("commit")
      .method<&DocumentWriter::discard>("discard");
}

}  // namespace zt::data
