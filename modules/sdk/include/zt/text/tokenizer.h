// Converts between text and token ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zt/base/object.h"

namespace zt {

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
  // Returns the bytes that an id adds to a text that it does not begin: perhaps a part of a character. Empty for an id that
  // stands for no text, such as the end of one. Throws as `decode`.
  virtual std::string bytes_of(int64_t id) const = 0;
  // Returns the bytes of the tokenizer's model file; empty for a tokenizer without a model.
  virtual const std::string& model() const = 0;
};

ZT_OBJECT(Tokenizer)

}  // namespace zt
