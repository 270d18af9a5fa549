// Draws the next tokens of all answers of a step from the logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "engine/live_answer.h"
#include "sample/shared_rows.h"

namespace zt::infer {

// The part of an answer in a step.
struct AnswerPart {
  LiveAnswer* answer = nullptr;
  int64_t rows = 0;                   // tokens that the step computes: of the prompt and the answer, then the guesses
  std::vector<int32_t> guesses = {};  // the last of them
  int64_t logits = 0;                 // rows, the last ones, whose logits the step has

  // Whether the tokens after the part are drawn: it has all tokens of the sequence.
  bool draws() const { return rows - std::ssize(guesses) == answer->sequence.left(); }
};

// Returns the number by which token `index` of a copy is drawn: 48 bits of the stream of the seed, in [0, 1).
double uniform_of(int64_t seed, int64_t copy, int64_t index);

// Returns what each part gets. logits: [rows, vocabulary], of the rows whose logits the step has, or, of a head that does not
// know `logits_of`, of all rows, part by part. Token i of an answer depends on its own row, the request, the copy, and i. A guess
// is kept if it is what is drawn in its place. With `share` the logits are those of this rank's tokens, [rows, share->count], and
// the call is collective over the ranks that share the vocabulary, all of which return the same.
std::vector<DrawnTokens> draw(const std::vector<AnswerPart>& parts, const at::Tensor& logits, const TokenShare* share = nullptr);

// The same as a plain value, for other ranks.
Value to_value(const std::vector<DrawnTokens>& drawn);
std::vector<DrawnTokens> drawn_of(const Value& value);

}  // namespace zt::infer
