// The normalizers of tokenizer.json: they change a text before it is split into words.
#pragma once

#include <memory>
#include <vector>

#include "huggingface/text/aligned_text.h"
#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

// Threads: any.
class TextNormalizer {
 public:
  virtual ~TextNormalizer();
  // Changes the text, which is valid UTF-8. Throws Fault if a regular expression exceeds a limit.
  virtual void apply(AlignedText& text) const = 0;
};

// Returns the normalizers in the order in which they apply. Throws Fault if one is not supported.
std::vector<std::unique_ptr<TextNormalizer>> parse_normalizers(const JsonFields& fields);

}  // namespace zt::data::huggingface
