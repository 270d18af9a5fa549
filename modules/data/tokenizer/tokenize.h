// From a text file to a token file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tokenizer.h"

namespace zt::data {

// Called now and then with the bytes of the text that are done and all of them. May throw, which ends the work.
using Progress = std::function<void(int64_t done, int64_t total)>;

// Encodes the text at `input` into `output` (NAME.npy, uint16 if the vocabulary fits, else uint32) with NAME.json and, for a
// tokenizer with a model, NAME.model beside it. Memory does not grow with the text. The files appear when all is done, the
// .npy last; an old .npy disappears before its companions are replaced. Returns the number of tokens.
// Fault for files that cannot be read or written, and for a text that is empty or, with sentencepiece, not UTF-8.
int64_t tokenize_file(const std::string& input, const std::string& output, const Tokenizer& tokenizer, const Progress& progress);

// Where the first byte is that is no part of valid UTF-8; npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// How many bytes of `text` to encode next: up to `limit`, to the end of a line, else of a word, else of a character.
size_t next_chunk(std::string_view text, size_t limit);

}  // namespace zt::data
