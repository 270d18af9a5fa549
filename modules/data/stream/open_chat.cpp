// Opens the streams over the files of `ztoolkit tokenize --chat`.
#include <ranges>

#include "chat_file.h"
#include "document_source.h"
#include "open.h"
#include "stream_options.h"
#include "zt/process/log.h"

namespace zt::data {

namespace {

// With `pack`: rows that can still take a record. More rows leave less padding.
constexpr int64_t kOpenRows = 64;

struct ChatOptions : CommonStreamOptions {
  int64_t seq = 0;
  bool pack = true;
  PaddingSide padding = PaddingSide::right;
  TooLong too_long = TooLong::drop;
  int64_t ignore_index = -100;
};

struct PromptOptions : CommonStreamOptions {
  std::optional<int64_t> max_prompt_tokens;
  TooLong too_long = TooLong::drop;
};

std::string check_ignored(int64_t index) {
  return index < 0 ? "" : fmt::format("must be below 0, so that it is no token, got {}", index);
}

Schema<ChatOptions> chat_schema(const char* name) {
  return with_phase(with_rows(common_schema<ChatOptions>(name)))
      .optional("pack", &ChatOptions::pack, "fill rows with several records; false: one per row")
      .optional("padding", &ChatOptions::padding, "'right' or 'left': where a row without pack is padded")
      .only_with("with pack = false", [](const ChatOptions& o) { return !o.pack; })
      .optional("too_long", &ChatOptions::too_long, "'drop' leaves a record out that has no room in a row; 'cut', 'error'")
      .optional("ignore_index", &ChatOptions::ignore_index, "label of what does not count", check_ignored);
}

const auto kConversations = chat_schema("data.conversations");
const auto kPreferences = chat_schema("data.preferences");
const auto kPrompts =
    with_phase(common_schema<PromptOptions>("data.prompts"))
        .optional("max_prompt_tokens", &PromptOptions::max_prompt_tokens, "of one prompt; default: any", at_least(1))
        .optional("too_long", &PromptOptions::too_long, "'drop' leaves a longer prompt out; 'cut' keeps its end; 'error'")
        .only_with("with max_prompt_tokens", [](const PromptOptions& o) { return o.max_prompt_tokens.has_value(); });

std::string counted(int64_t n, const char* what) {
  return n == 0 ? "" : fmt::format("{} {}", n, what);
}

// Says how many records are left out. Throws Misuse if all are.
void report_left_out(const std::string& name, const ChatFile& file, int64_t chosen, const LeftOut& left_out,
                     const std::string& long_text, const char* useless_text, const World& world) {
  if (chosen == 0) {
    misuse("{}: no record of the {} of '{}' belongs to this split and this phase: give another validation fraction or phase",
           name, file.records, file.tokens->path());
  }
  if (left_out.total() == 0) return;
  std::vector<std::string> reasons{counted(left_out.too_long, long_text.c_str()), counted(left_out.useless, useless_text)};
  std::erase(reasons, "");
  const std::string text = fmt::format("{} of the {} records of '{}' in this split: {}", left_out.total(), chosen,
                                       file.tokens->path(), fmt::join(reasons, ", "));
  if (left_out.total() == chosen)
    misuse("{} would leave out all records, {}. Give more room, or too_long = \"cut\", or other data", name, text);
  const bool is_much = left_out.total() * 10 > chosen;
  log(is_much && world.rank == 0 ? LogLevel::warn : LogLevel::info, world, fmt::format("{} leaves out {}", name, text));
}

using Select = std::vector<ChatRecord> (*)(const ChatFile&, const MaskFile&, const std::vector<int64_t>&, int64_t, TooLong,
                                           LeftOut&);

std::shared_ptr<Stream> open_rows(const Schema<ChatOptions>& schema, ChatKind kind, Select select, const Value& value,
                                  const World& world) {
  const ChatOptions options = schema.parse(value);
  const ChatFile file = open_chat_file(options.path, kind);
  auto mask = std::make_shared<const MaskFile>(*file.tokens);
  const std::vector<int64_t> chosen = chosen_of(file.records, options);
  LeftOut left_out;
  std::vector<ChatRecord> kept = select(file, *mask, chosen, options.seq, options.too_long, left_out);
  const bool is_pairs = kind == ChatKind::preferences;
  report_left_out(schema.name(), file, static_cast<int64_t>(chosen.size()), left_out,
                  is_pairs ? fmt::format("with more than seq = {} positions in both answers", options.seq)
                           : fmt::format("with more than seq + 1 = {} tokens", options.seq + 1),
                  is_pairs ? "with an answer without a label" : "without a label", world);
  Value::Table order = order_of(*file.tokens, options);
  order["seq"] = options.seq;
  order["pack"] = options.pack;
  order["padding"] = word_of(options.padding);
  order["ignore_index"] = options.ignore_index;
  order["too_long"] = word_of(options.too_long);
  order["mask"] = mask->digest();
  order["offsets"] = NpyFile(beside(options.path, ".offsets.npy")).digest();
  StreamOptions all = stream_options(schema.name(), options, std::move(order));
  const RowOptions rows{.seq = options.seq,
                        .ignore_index = options.ignore_index,
                        .pack = options.pack,
                        .numbered = true,
                        .padding = options.padding,
                        .open_rows = kOpenRows};
  auto records = std::make_unique<ChatRecords>(file.tokens, std::move(mask), std::move(kept), is_pairs ? 2 : 1);
  return std::make_shared<Stream>(schema.name(), std::make_unique<DocumentSource>(std::move(records), rows), std::move(all));
}

}  // namespace

std::shared_ptr<Stream> open_conversations(const Value& value, const World& world) {
  return open_rows(kConversations, ChatKind::conversations, conversations_of, value, world);
}

std::shared_ptr<Stream> open_preferences(const Value& value, const World& world) {
  return open_rows(kPreferences, ChatKind::preferences, pairs_of, value, world);
}

std::shared_ptr<PromptStream> open_prompts(const Value& value, const World& world) {
  const PromptOptions options = kPrompts.parse(value);
  const ChatFile file = open_chat_file(options.path, ChatKind::prompts);
  auto items = std::make_shared<const JsonLines>(beside(options.path, ".items.jsonl"));
  if (items->count() != file.records) {
    fault(
        "'{}' has {} lines, and '{}' has {} records: the files are not from one run. Make both again with ztoolkit tokenize --chat",
        items->path(), items->count(), file.tokens->path(), file.records);
  }
  const std::vector<int64_t> chosen = chosen_of(file.records, options);
  const int64_t most = options.max_prompt_tokens.value_or(0);
  LeftOut left_out;
  std::vector<Prompt> prompts = prompts_of(file, chosen, most, options.too_long, left_out);
  report_left_out(kPrompts.name(), file, static_cast<int64_t>(chosen.size()), left_out,
                  fmt::format("with more than max_prompt_tokens = {} tokens", most), "without a token", world);
  Value::Table order = order_of(*file.tokens, options);
  order["offsets"] = NpyFile(beside(options.path, ".offsets.npy")).digest();
  if (most > 0) {
    order["max_prompt_tokens"] = most;
    order["too_long"] = word_of(options.too_long);
  }
  StreamOptions all = stream_options(kPrompts.name(), options, std::move(order));
  return std::make_shared<PromptStream>(kPrompts.name(), file.tokens, std::move(prompts), std::move(items), std::move(all));
}

}  // namespace zt::data
