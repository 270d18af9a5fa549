// Rows of prompts and their answers, as trainers and scorers take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace zt::rlhf {

// Sequences of a prompt, of at least one token, and an answer. int64 on the CPU: tokens one after the other, and offsets
// [sequences + 1] that begin with 0, ascend, and end with their number.
struct Sequences {
  at::Tensor prompts, prompt_offsets, answers, answer_offsets;

  // Throws Misuse if the tensors are not what is said above.
  void check() const;
  int64_t count() const { return prompt_offsets.numel() - 1; }
  int64_t prompt_size(int64_t sequence) const;
  int64_t answer_size(int64_t sequence) const;
  int64_t size(int64_t sequence) const { return prompt_size(sequence) + answer_size(sequence); }
};

enum class RowPadding : uint8_t { packed, right, left };
constexpr auto words_of(RowPadding) {
  return std::array{"packed", "right", "left"};
}

struct SequenceRowOptions {
  int64_t seq = 0;
  RowPadding padding = RowPadding::packed;  // rows of several sequences, or of one with padding on that side
  int64_t ignore_index = -100;
};

// Returns the row of each chosen sequence: with `packed` the first of the last 64 rows that has room, else one of its own. Throws
// Misuse if one is longer than a row or if there is no such sequence.
std::vector<int64_t> rows_of(const Sequences& sequences, std::span<const int64_t> chosen, const SequenceRowOptions& options);

// Fields [rows, seq], int64. A sequence has a position for each of its tokens, also for the last one, at which reward models
// score.
//   tokens, and 0 at padding; labels: the next token, if it is one of the answer, else ignore_index
//   segments: 0, 1, ... per sequence of the row and per padding, in the order in which they lie there; positions: from 0 in each
//   padding: 1 at padding, else 0
//   sequence: 0, 1, ... per sequence of the row, -1 at padding
//   lengths: the number of tokens of the sequence's answer, 0 at padding
// Numbers [rows * seq] of positions:
//   label_places: those of the labels, [answers' tokens], in the order of `chosen`
//   last_places: of the last token of each chosen sequence
struct SequenceRows {
  std::map<std::string, at::Tensor> fields;
  at::Tensor label_places, last_places;
};
// `rows`: how many to make; the last ones are padding if fewer are needed. Throws Misuse if more are needed, and as rows_of.
SequenceRows make_rows(const Sequences& sequences, std::span<const int64_t> chosen, int64_t rows,
                       const SequenceRowOptions& options);

}  // namespace zt::rlhf
