// Decodes ids by the decoders of tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "huggingface/decode/token_decoder.h"
#include "huggingface/text/json_fields.h"
#include "huggingface/token_pipeline.h"

namespace zt::data::huggingface {

// Threads: any.
class TokenWriter {
 public:
  // `fields` are those of the whole file. `pipeline` has to outlive the object. Throws Fault if a decoder is not supported.
  TokenWriter(const JsonFields& fields, const TokenPipeline& pipeline);

  // Returns the text of ids, without special tokens. Ids without a token are left out.
  std::string decode(std::span<const int64_t> ids) const;
  // Returns the bytes that an id adds to a text that it does not begin.
  std::string bytes_of(int64_t id) const;

 private:
  const TokenPipeline& pipeline_;
  std::vector<std::unique_ptr<TokenDecoder>> decoders_;
  bool joins_by_space_ = true;  // the file has no decoder
};

}  // namespace zt::data::huggingface
