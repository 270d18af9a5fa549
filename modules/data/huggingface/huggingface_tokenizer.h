// Tokenizers in the format tokenizer.json of Hugging Face's library `tokenizers`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "zt/text/tokenizer.h"

namespace zt::data {

// Returns the tokenizer that the text of a tokenizer.json describes; its `kind` is "tokenizer.json". It encodes and decodes as
// `tokenizers` 0.23 does:
//   encode, Specials::none      encode(text, add_special_tokens=False) with encode_special_tokens=True
//   encode, Specials::parsed    encode(text, add_special_tokens=False)
//   encode, Specials::added     encode(text, add_special_tokens=True)
//   decode                      decode(ids, skip_special_tokens=True)
// Texts have to be valid UTF-8. A character that Unicode 14 does not assign may have other properties than in `tokenizers`, and
// so may become other tokens where a regular expression or a normalizer asks for them.
//
// The fields `truncation` and `padding` do not apply here: they never change the ids of a text that is neither cut nor padded.
//
// `name` is for messages. Throws Fault, with `name` and the place in the file, if the text is not a tokenizer.json, if it
// contradicts itself, or if it has a component or an option that is not supported.
std::shared_ptr<Tokenizer> parse_huggingface_tokenizer(std::string_view json, const std::string& name);

}  // namespace zt::data
