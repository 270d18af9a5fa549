// The pre-tokenizers of tokenizer.json: they split a text into words.
#pragma once

#include <memory>
#include <vector>

#include "huggingface/split/split_text.h"
#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any.
class PreTokenizer {
 public:
  virtual ~PreTokenizer();
  // Splits the words of the text further, or changes them. Throws Fault if a regular expression exceeds a limit.
  virtual void split(SplitText& text) const = 0;
};

struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> steps;  // in the order in which they apply
  // The last step does not write bytes as characters (byte_level.h), though its type is ByteLevel: the caller has to do that with
  // each word. So a word that is in a cache need not be rewritten.
  bool leaves_bytes = false;
};

// Throws Fault if one is not supported.
PreTokenizers parse_pre_tokenizers(const JsonFields& fields);

}  // namespace zt::data::huggingface
