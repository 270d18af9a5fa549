// Subword tokens by the sentencepiece library (Kudo and Richardson 2018).
#pragma once

#include "text_reader.h"
#include "tokenizer.h"

namespace zt::data {

// A tokenizer from a model's bytes; `name` is for messages. Fault when they are no model.
std::shared_ptr<Tokenizer> sentencepiece_tokenizer(std::string_view model, const std::string& name);

struct TrainOptions {
  int64_t vocab = 4096;            // pieces, 256 of them single bytes: no text is ever unknown
  std::string type = "bpe";        // or "unigram"
  int64_t sample_bytes = 3 << 20;  // of the text that are learnt from, taken evenly from all of it
};

// Learns a model from `text`, one sentence a line. Encoding is lossless: spaces and line feeds are kept as they are, and a
// character without a piece becomes its bytes (U+2581, the library's mark for a space, comes back as a space; bytes that are
// no UTF-8 as U+FFFD). Pieces never span a line feed. `name` is for messages.
// Misuse for a text too small for the vocabulary.
std::shared_ptr<Tokenizer> train_sentencepiece(TextReader& text, const TrainOptions& options, const std::string& name);
std::shared_ptr<Tokenizer> train_sentencepiece(std::string_view text, const TrainOptions& options, const std::string& name);

}  // namespace zt::data
