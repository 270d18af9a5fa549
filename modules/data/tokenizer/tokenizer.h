// The tokenizers of files and of bytes.
#pragma once

#include <memory>
#include <string>

#include "zt/text/tokenizer.h"

namespace zt::data {

// Returns a tokenizer with one id per byte. It encodes and restores any bytes.
std::shared_ptr<Tokenizer> byte_tokenizer();

// Loads a tokenizer. `path` is a tokenizer.json, a sentencepiece model ("corpus.model"), a folder with one of these (the former
// first), or a token file ("corpus.npy"), whose companion names its tokenizer. Throws Fault if a file is missing, is not a model,
// or is not the model whose hash the companion recorded.
std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);
// Returns the tokenizer of the content of a tokenizer.json, or of a sentencepiece model. `name`: of the file, for messages.
std::shared_ptr<Tokenizer> parse_tokenizer(std::string_view content, const std::string& name);

// Returns what the name of the tokenizer's model file ends in, beside a token file: ".model" or ".tokenizer.json".
std::string model_extension(const Tokenizer& tokenizer);

}  // namespace zt::data
