// The tokenizers of files and of bytes.
#pragma once

#include <memory>
#include <string>

#include "zt/text/tokenizer.h"

namespace zt::data {

// Returns a tokenizer with one id per byte. It encodes and restores any bytes.
std::shared_ptr<Tokenizer> byte_tokenizer();

// Loads a tokenizer. `path` is a sentencepiece model ("corpus.model") or a token file ("corpus.npy"), whose companion names its
// tokenizer. Throws Fault if a file is missing, is not a model, or is not the model whose hash the companion recorded.
std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace zt::data
