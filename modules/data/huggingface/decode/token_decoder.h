// The decoders of tokenizer.json: they make a text of tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any.
class TokenDecoder {
 public:
  virtual ~TokenDecoder();
  // Changes the tokens of a text.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
  // Changes one token that is not the first of a text, as `decode` would. Bytes that are only a part of a character stay as they
  // are. `is_fused`: a decoder before this one joins all tokens.
  virtual void decode_one(std::string& token, bool is_fused) const = 0;
  // Returns whether the decoder joins all tokens.
  virtual bool fuses() const { return false; }
};

// Returns the decoders in the order in which they apply. Throws Fault if one is not supported.
std::vector<std::unique_ptr<TokenDecoder>> parse_decoders(const JsonFields& fields);

}  // namespace zt::data::huggingface
