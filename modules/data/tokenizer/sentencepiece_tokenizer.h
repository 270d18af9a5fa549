// Subword tokenizers of the sentencepiece library (Kudo and Richardson 2018).
#pragma once

#include "text_reader.h"
#include "tokenizer.h"

namespace zt::data {

// The fewest pieces that can be learnt: 256 single bytes, the unknown piece, and some of the text.
constexpr int64_t kFewestPieces = 300;

// Returns a tokenizer for the bytes of a model file. `name` is for messages. Throws Fault if the bytes are not a valid model.
std::shared_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view model, const std::string& name);

struct TrainOptions {
  int64_t vocab = 4096;            // number of pieces; 256 of them are single bytes, so every text can be encoded
  std::string type = "bpe";        // or "unigram"
  int64_t sample_bytes = 3 << 20;  // bytes to learn from, taken evenly from the whole text
};

// Learns a model from `text`, with one sentence per line. Encoding is lossless: spaces and line feeds are kept, and a character
// without a piece becomes its bytes. There are two exceptions: U+2581, the library's mark for a space, is decoded as a space, and
// bytes that are not UTF-8 are decoded as U+FFFD. Pieces never span a line feed. `name` is for messages.
// Throws Misuse if the text is too small for the vocabulary.
std::shared_ptr<Tokenizer> train_sentencepiece(TextReader& text, const TrainOptions& options, const std::string& name);
std::shared_ptr<Tokenizer> train_sentencepiece(std::string_view text, const TrainOptions& options, const std::string& name);

}  // namespace zt::data
