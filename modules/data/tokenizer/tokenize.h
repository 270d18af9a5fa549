// Makes a token file from a text file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tokenizer.h"

namespace zt::data {

// Called after each part of the text with the bytes that are done and the bytes of the whole text. May throw, which stops the
// work.
using Progress = std::function<void(int64_t done, int64_t total)>;

// Throws Fault or Misuse if tokenize_file would refuse the names or the folder of the files. Call it before long work, such as
// learning a tokenizer.
void check_tokenize(const std::string& input, const std::string& output);

// Encodes the text at `input` into `output` (NAME.npy, uint16 if the vocabulary fits, else uint32). Also writes NAME.json and,
// for a tokenizer with a model, NAME.model. Memory does not grow with the text. The files appear when the whole text is encoded,
// the .npy last. An old .npy is removed before its companions are replaced. Returns the number of tokens.
// Throws Fault if a file cannot be read or written, or if the text is empty or, with sentencepiece, not UTF-8. Throws Misuse if
// `output` does not end in .npy, if its folder is missing or cannot be written, or if an output would replace the text or
// something that is not a regular file.
int64_t tokenize_file(const std::string& input, const std::string& output, const Tokenizer& tokenizer, const Progress& progress);

// Returns the offset of the first byte that is not part of valid UTF-8, or npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// Returns how many bytes of `text` to encode next: at most `limit`, up to the end of a line; without one, up to the end of a
// word; without one, up to the end of a character. Returns at least 1 if `text` is not empty.
size_t next_chunk(std::string_view text, size_t limit);

}  // namespace zt::data
