// The files that `ztoolkit tokenize --chat` writes: NAME.npy with its companion, NAME.mask.npy and NAME.offsets.npy.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "records.h"
#include "tokens/documents.h"
#include "tokens/mask_file.h"
#include "tokens/token_file.h"

namespace zt::data {

// The kind of a file's records, as its companion says.
enum class ChatKind : uint8_t { conversations, preferences, prompts };
constexpr auto words_of(ChatKind) {
  return std::array{"conversations", "preferences", "prompts"};
}

// Says how a stream treats a record that is too long for it.
enum class TooLong : uint8_t { drop, cut, error };
constexpr auto words_of(TooLong) {
  return std::array{"drop", "cut", "error"};
}

// The tokens, and all documents: one per record, or of preferences three, the prompt and the answers chosen and rejected.
struct ChatFile {
  std::shared_ptr<const TokenFile> tokens;
  std::vector<Document> documents;
  int64_t records = 0;
};
// Throws Fault for a defect: no companion, another kind, offsets or documents that do not fit.
ChatFile open_chat_file(const std::string& path, ChatKind kind);

// How many records a stream leaves out.
struct LeftOut {
  int64_t too_long = 0;
  int64_t useless = 0;  // without a label, or prompts without a token
  int64_t total() const { return too_long + useless; }
};

// Return the records of the file with the indices `chosen` that a row of `seq` positions takes, and add up what they leave out:
// a record in which no label counts (of a pair: in one of its sequences), and with `drop` one that is too long. Throw Misuse,
// with the record, with `error`, and Fault for a mask that the kind cannot have.
//
// `cut` cuts a conversation, and the answers of a pair, at the end. Both sequences of a pair then have at most as many positions
// as lets them fit in a row together, so the longer one is cut first.
std::vector<ChatRecord> conversations_of(const ChatFile& file, const MaskFile& mask, const std::vector<int64_t>& chosen,
                                         int64_t seq, TooLong too_long, LeftOut& left_out);
std::vector<ChatRecord> pairs_of(const ChatFile& file, const MaskFile& mask, const std::vector<int64_t>& chosen, int64_t seq,
                                 TooLong too_long, LeftOut& left_out);

// A prompt: its tokens, and which record of the file it is.
struct Prompt {
  Document tokens;
  int64_t record = 0;
};
// Return the prompts with the indices `chosen`. `cut` keeps the end of a prompt. `most`: tokens of a prompt; 0 means any number.
std::vector<Prompt> prompts_of(const ChatFile& file, const std::vector<int64_t>& chosen, int64_t most, TooLong too_long,
                               LeftOut& left_out);

}  // namespace zt::data
