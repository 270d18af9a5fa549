// Decoders that change texts: Fuse, Strip and Replace.
#pragma once

#include <memory>
#include <string>

#include "huggingface/decode/token_decoder.h"

namespace zt::data::huggingface {

// Returns nullptr if the type is not one of these. Throws Fault if the fields are wrong.
std::unique_ptr<TokenDecoder> parse_text_decoder(const std::string& type, const JsonFields& fields);

}  // namespace zt::data::huggingface
