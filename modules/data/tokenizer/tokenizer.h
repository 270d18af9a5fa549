// Between text and token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zt/base/object.h"

namespace zt::data {

// Threads: const; several may encode at a time.
class Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual const char* kind() const = 0;  // "bytes", "sentencepiece"
  virtual int64_t vocab() const = 0;
  // Appends the ids of `text` to `out`.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  // Misuse for an id outside 0 .. vocab-1.
  virtual std::string decode(std::span<const int64_t> ids) const = 0;
  // What load_tokenizer reads back; empty for a tokenizer without a model.
  virtual const std::string& model() const = 0;
};

// One id a byte: any text, and any text comes back.
std::shared_ptr<Tokenizer> byte_tokenizer();

// A tokenizer by path: a sentencepiece model ("corpus.model"), or a token file ("corpus.npy"), whose companion names its
// tokenizer. Fault when the file is missing, is no model, or is not the model that the companion recorded.
std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace zt::data

namespace zt {
ZT_OBJECT(data::Tokenizer)
}
