#include "template/syntax/token_stream.h"

namespace zt::data::jinja {

std::string TokenStream::describe() const {
  switch (kind()) {
    case TokenKind::data:
      return "text";
    case TokenKind::output_begin:
      return "'{{'";
    case TokenKind::output_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::name:
      return "the name '" + current().name + "'";
    case TokenKind::string:
      return "a string";
    case TokenKind::integer:
    case TokenKind::number:
      return "a number";
    case TokenKind::symbol:
      return "'" + current().name + "'";
    case TokenKind::end:
      return "the end of the template";
  }
  return "";
}

}  // namespace zt::data::jinja
