#include "chat_file.h"

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/words.h"

namespace zt::data {

namespace {

void check_kind(const TokenFile& tokens, ChatKind kind) {
  const std::string companion = beside(tokens.path(), ".json");
  if (!tokens.companion()) {
    fault("'{}' has no companion '{}', which says what its records are: make both with ztoolkit tokenize --chat", tokens.path(),
          companion);
  }
  const auto& note = tokens.companion()->documents;
  if (!note) {
    fault(
        "'{}' is made of a text and not of {}, as '{}' says: read it with data.tokens, or make it with ztoolkit tokenize --chat",
        tokens.path(), word_of(kind), companion);
  }
  if (note->kind != word_of(kind)) {
    fault("'{}' holds {}, as '{}' says, and not {}: read it with data.{}, or give another file", tokens.path(), note->kind,
          companion, word_of(kind), note->kind);
  }
}

[[noreturn]] void refuse_long(const ChatFile& file, int64_t record, const std::string& what) {
  misuse("record {} of '{}' has {}: give more room, or too_long = \"drop\" or \"cut\"", record, file.tokens->path(), what);
}

[[noreturn]] void refuse_mask(const MaskFile& mask, int64_t record, const char* where) {
  fault(
      "the mask '{}' has a 1 in {} of record {}, which is no label: the files are damaged, or not from one run. Make them again "
      "with ztoolkit tokenize --chat",
      mask.path(), where, record);
}

// Returns the most positions of each of two sequences of a and b positions that have room for `seq` together.
int64_t positions_each(int64_t a, int64_t b, int64_t seq) {
  const int64_t shorter = std::min(a, b);
  return std::max(seq / 2, seq - shorter);
}

// An answer of a pair, and the index of its first label.
struct PairAnswer {
  Document tokens;
  int64_t first_label = 0;
  bool has_label(int64_t prompt) const { return first_label < tokens.size && prompt + first_label >= 1; }
};

}  // namespace

ChatFile open_chat_file(const std::string& path, ChatKind kind) {
  ChatFile file{std::make_shared<const TokenFile>(path), {}, 0};
  check_kind(*file.tokens, kind);
  const std::string offsets = beside(path, ".offsets.npy");
  file.documents = all_documents(*file.tokens, offsets);
  file.records = file.tokens->companion()->documents->records;
  const int64_t of_record = kind == ChatKind::preferences ? 3 : 1;
  if (file.records < 1 || static_cast<int64_t>(file.documents.size()) != file.records * of_record) {
    fault(
        "'{}' has {} documents, and the {} {} of '{}' need {}: the files are not from one run. Make them again with ztoolkit "
        "tokenize --chat",
        offsets, file.documents.size(), file.records, word_of(kind), beside(path, ".json"), file.records * of_record);
  }
  return file;
}

std::vector<ChatRecord> conversations_of(const ChatFile& file, const MaskFile& mask, const std::vector<int64_t>& chosen,
                                         int64_t seq, TooLong too_long, LeftOut& left_out) {
  const std::vector<int64_t> first_labels = mask.first_labels(file.documents);
  std::vector<ChatRecord> records;
  for (const int64_t index : chosen) {
    Document document = file.documents[static_cast<size_t>(index)];
    const int64_t first = first_labels[static_cast<size_t>(index)];
    if (first == 0 && document.size > 0) refuse_mask(mask, index, "the first token");
    if (document.size > seq + 1) {
      if (too_long == TooLong::error)
        refuse_long(file, index, fmt::format("{} tokens, and a row takes seq + 1 = {}", document.size, seq + 1));
      if (too_long == TooLong::drop) {
        ++left_out.too_long;
        continue;
      }
      document.size = seq + 1;
    }
    if (first < document.size) records.push_back({.tails = {document}});
    else ++left_out.useless;
  }
  return records;
}

std::vector<ChatRecord> pairs_of(const ChatFile& file, const MaskFile& mask, const std::vector<int64_t>& chosen, int64_t seq,
                                 TooLong too_long, LeftOut& left_out) {
  const std::vector<int64_t> first_labels = mask.first_labels(file.documents);
  std::vector<ChatRecord> records;
  for (const int64_t index : chosen) {
    const auto first = static_cast<size_t>(3 * index);
    const Document prompt = file.documents[first];
    if (first_labels[first] < prompt.size) refuse_mask(mask, index, "the prompt");
    PairAnswer answers[] = {{file.documents[first + 1], first_labels[first + 1]},
                            {file.documents[first + 2], first_labels[first + 2]}};
    const auto positions = [&](int side) { return prompt.size + answers[side].tokens.size; };
    if (positions(0) + positions(1) > seq) {
      if (too_long == TooLong::error) {
        refuse_long(file, index,
                    fmt::format("{} and {} tokens with its two answers, and a row takes seq = {} for both", positions(0),
                                positions(1), seq));
      }
      if (too_long == TooLong::drop) {
        ++left_out.too_long;
        continue;
      }
      const int64_t most = positions_each(positions(0), positions(1), seq);
      for (PairAnswer& answer : answers) {
        answer.tokens.size = std::clamp<int64_t>(most - prompt.size, 0, answer.tokens.size);
      }
    }
    if (answers[0].has_label(prompt.size) && answers[1].has_label(prompt.size))
      records.push_back({.head = prompt, .tails = {answers[0].tokens, answers[1].tokens}});
    else ++left_out.useless;
  }
  return records;
}

std::vector<Prompt> prompts_of(const ChatFile& file, const std::vector<int64_t>& chosen, int64_t most, TooLong too_long,
                               LeftOut& left_out) {
  std::vector<Prompt> prompts;
  for (const int64_t index : chosen) {
    Document tokens = file.documents[static_cast<size_t>(index)];
    if (most > 0 && tokens.size > most) {
      if (too_long == TooLong::error)
        refuse_long(file, index, fmt::format("{} tokens, and max_prompt_tokens is {}", tokens.size, most));
      if (too_long == TooLong::drop) {
        ++left_out.too_long;
        continue;
      }
      tokens = {tokens.begin + tokens.size - most, most};
    }
    if (tokens.size > 0) prompts.push_back({tokens, index});
    else ++left_out.useless;
  }
  return prompts;
}

}  // namespace zt::data
