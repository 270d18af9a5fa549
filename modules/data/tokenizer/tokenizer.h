// Converts between text and token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zt/base/object.h"

namespace zt::data {

// Threads: any; several may encode at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual const char* kind() const = 0;  // "bytes", "sentencepiece"
  virtual int64_t vocab() const = 0;
  // Appends the ids of `text` to `out`.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  // Returns the text of `ids`. Throws Misuse for an id outside 0 .. vocab-1.
  virtual std::string decode(std::span<const int64_t> ids) const = 0;
  // Returns the bytes of the model file that load_tokenizer reads; empty for a tokenizer without a model.
  virtual const std::string& model() const = 0;
};

// Returns a tokenizer with one id per byte. It encodes and restores any bytes.
std::shared_ptr<Tokenizer> byte_tokenizer();

// Loads a tokenizer. `path` is a sentencepiece model ("corpus.model") or a token file ("corpus.npy"), whose companion names its
// tokenizer. Throws Fault if a file is missing, is not a model, or is not the model whose hash the companion recorded.
std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::Tokenizer)
}
