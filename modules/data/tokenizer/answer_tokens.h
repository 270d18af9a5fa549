// Converts a text with answers to tokens, and says which of them count in the loss.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "zt/text/tokenizer.h"

namespace zt::data {

// A text that holds answers of a model. The text is cut at both ends of each answer, and the parts are encoded apart: when an
// answer is sampled, its prompt is encoded without it.
struct AnswerText {
  std::string_view text;
  // What users wrote: no special token is recognized there. Ascending and disjoint.
  std::span<const TextRange> contents = {};
  // Ascending and disjoint.
  std::span<const TextRange> answers = {};
  // The first `from` bytes are another document, which this one continues: they are not encoded. With from > 0, the first token
  // counts if it is in an answer, and tokens after the last one that counts are left out.
  size_t from = 0;
  std::span<const int64_t> stop_tokens = {};  // that end an answer
  bool ends_at_stop = false;                  // what follows the last stop token of an answer does not count
  bool counts_all = false;                    // all tokens but the first one count, those outside of answers, too
  std::span<const int64_t> begin = {};        // tokens before the text
  std::optional<int64_t> end = std::nullopt;  // a token after each answer, which counts
};

struct AnswerTokens {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> counts;  // 1 where the token counts as a label; as long as `tokens`
  int64_t stopped = 0;          // answers that hold a stop token
};

// The first token of a document does not count: nothing comes before it. Throws Fault as Tokenizer::encode and
// encode_continuation.
AnswerTokens encode_answers(const Tokenizer& tokenizer, const AnswerText& text);

// Appends the tokens of a text that continues another one, whose last token is `previous`, -1 if that is not known: without the
// space that some tokenizers, such as Llama 2's, put before each text, unless they put it after that token. Throws Fault if the
// tokenizer cannot encode the text, or joins it with whatever is before it.
void encode_continuation(const Tokenizer& tokenizer, std::string_view text, std::span<const TextRange> contents, int32_t previous,
                         std::vector<int32_t>& out);

}  // namespace zt::data
