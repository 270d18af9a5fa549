// Converts between text and token ids.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zt/base/object.h"

namespace zt {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// Says what becomes of special tokens, such as "<|im_end|>", in an encoding.
enum class Specials : uint8_t {
  none,    // a text that spells one is encoded as any other text
  parsed,  // a text that spells one becomes that token
  added,   // as parsed, and the tokenizer adds those that it puts around each text, such as the token of the beginning
};

constexpr auto words_of(Specials) {
  return std::array{"none", "parsed", "added"};
}

struct EncodeOptions {
  Specials specials = Specials::none;
  // Ranges of the text in which no special token is recognized whatever `specials` is: what users wrote. Ascending and disjoint.
  std::span<const TextRange> contents = {};
};

// Threads: any; several may encode at the same time.
class Tokenizer {
 public:
  virtual ~Tokenizer();
  virtual const char* kind() const = 0;  // "bytes", "sentencepiece", "tokenizer.json"
  virtual int64_t vocab() const = 0;
  // Appends the ids of `text`, which is UTF-8, to `out`. Throws Fault if the tokenizer cannot encode it.
  virtual void encode(std::string_view text, std::vector<int32_t>& out, const EncodeOptions& options = {}) const = 0;
  // Returns the text of `ids`, without special tokens. Throws Misuse for an id outside 0 .. vocab-1.
  virtual std::string decode(std::span<const int64_t> ids) const = 0;
  // Returns the bytes that an id adds to a text that it does not begin: perhaps a part of a character. Empty for an id that
  // stands for no text, such as the end of one. Throws as `decode`.
  virtual std::string bytes_of(int64_t id) const = 0;
  // Returns the id of a token as the tokenizer's file writes it, such as "<|im_end|>", or nullopt.
  virtual std::optional<int64_t> id_of(std::string_view token) const = 0;
  // Returns the token of an id as the tokenizer's file writes it: the inverse of id_of. Empty for an id without a token. Throws
  // as `decode`.
  virtual std::string token_of(int64_t id) const = 0;
  // Returns whether the id is a special token. Throws as `decode`.
  virtual bool is_special(int64_t id) const = 0;
  // Returns the bytes of the tokenizer's model file; empty for a tokenizer without a model.
  virtual const std::string& model() const = 0;
};

ZT_OBJECT(Tokenizer)

}  // namespace zt
