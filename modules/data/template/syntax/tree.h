// Makes the nodes of expressions.
#pragma once

#include "template/syntax/syntax.h"
#include "template/syntax/token_stream.h"

namespace zt::data::jinja {

// Throws Fault if the tree would be too high.
ExpressionPtr make_expression(const TokenStream& tokens, int line, Expression::Node node);

}  // namespace zt::data::jinja
