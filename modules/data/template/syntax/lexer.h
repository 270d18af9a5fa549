// Splits the source of a template into tokens.
#pragma once

#include <string>
#include <vector>

#include "template/value/text.h"

namespace zt::data::jinja {

enum class TokenKind : uint8_t {
  data,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  number,
  symbol,
  end
};

struct TemplateToken {
  TokenKind kind;
  int line;
  MarkedText text;   // of data and strings; strings without quotes and escapes
  std::string name;  // of names and symbols, in UTF-8
  int64_t integer = 0;
  double number = 0;
};

// The rules are those of jinja2 with trim_blocks and lstrip_blocks, without keep_trailing_newline. Comments leave no token. A raw
// block is data. The last token is `end`. `name` is for messages. Throws Fault for a source that is not UTF-8, an unknown
// character, or a tag that is not closed.
std::vector<TemplateToken> tokenize_template(std::string_view source, const std::string& name);

}  // namespace zt::data::jinja
