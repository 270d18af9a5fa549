// The options of Metaspace, which is a pre-tokenizer and a decoder.
#pragma once

#include <string>

#include "huggingface/text/json_fields.h"

namespace zt::data::huggingface {

enum class PrependScheme : unsigned char { always, first, never };

struct Metaspace {
  std::string replacement;  // the character that stands for a space
  PrependScheme scheme = PrependScheme::always;
  bool splits = true;
};

// Throws Fault if the fields are wrong.
Metaspace parse_metaspace(const JsonFields& fields);

}  // namespace zt::data::huggingface
